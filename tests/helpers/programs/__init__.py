"""Programs that a test runs in a process of its own; a test may import them for their tables."""
