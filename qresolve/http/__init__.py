"""HTTP for every command: one client, retries, a cache, and the Simple API on top of them."""
