"""The Spark skin: options, source and sink. It translates; everything it knows about the log it asks ``log``."""
