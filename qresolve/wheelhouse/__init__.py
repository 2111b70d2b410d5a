"""The wheels of a lock in one folder, so that an installation needs no network."""
