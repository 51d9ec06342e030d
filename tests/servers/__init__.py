"""Servers for tests: one that nobody here wrote (nginx), and one that misbehaves to the byte."""
