"""Keeping the data honest: a release's sources and its real selectors, compared with the records."""
