"""From a lock to an environment: the target interpreter, the installers, and what state they leave."""
