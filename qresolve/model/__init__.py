"""A checkpoint's configuration: which formats, schemes and roles it has, and what it says about the workload."""
