"""The names that users read: views, functions of the past, copies and marts."""
