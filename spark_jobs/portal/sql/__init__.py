"""The SQL page: statements through the Thrift port as a reader, completion, the past, saved queries."""
