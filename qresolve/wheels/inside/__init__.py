"""Scripts that run inside a target's interpreter, which knows nothing of qresolve. Never imported."""
