"""The LLM proxy: a process of its own that passes calls on, in pieces as they come, and times them."""
