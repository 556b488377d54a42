"""Restatement: after each drain, recompute exactly what the new updates touch; desired − published = corrections."""
