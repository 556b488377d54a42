"""Restatement: after each drain, compute anew what new updates touch; desired − published = corrections."""
