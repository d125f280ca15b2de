"""Parts that source and sink share."""
