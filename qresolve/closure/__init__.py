"""The closure: every package of an environment, each with exactly one wheel. uv resolves, this asks and checks."""
