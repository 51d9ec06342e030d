"""What locust is told: its faster client, one GET after the other."""

from __future__ import annotations

from locust import FastHttpUser, task


class Visitor(FastHttpUser):  # type: ignore[misc]
    """A user without pauses."""

    @task
    def get(self) -> None:
        """The one request."""
        self.client.get("/")
