"""Workflows in Python, and commands, as what is measured: their calls, the engine that runs them, the LLM proxy."""

from __future__ import annotations

from gpusize.targets.workflow.mark_calls import Call, call, llm_base_url

__all__ = ["Call", "call", "llm_base_url"]
