"""Collection of files that no entry needs any more."""
