"""Which workload an object belongs to: its label, its owners, or the labels and names that other tools go by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.cluster.tables import LABEL_WORKLOAD

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Belonging"]

_LABELS: Final = (
    "release",
    "job-name",
    "training.kubeflow.org/job-name",
    "batch.kubernetes.io/job-name",
    "jobset.sigs.k8s.io/jobset-name",
)
_FARTHEST: Final = 16


class Belonging:
    """Workloads of objects, as far as they have been seen.

    Args:
        own: the kinds that are submitted; an object of them that has no label and no owner is a workload itself.
    """

    def __init__(self, own: Collection[str] = ()) -> None:
        self._own = frozenset(own)
        self._names: dict[str, str] = {}
        self._guesses: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._claims: dict[tuple[str, str], str] = {}
        self._claim_of: dict[str, tuple[str, str]] = {}

    def see(
        self,
        kind: str,
        uid: str,
        namespace: str | None,
        name: str,
        labels: Mapping[str, str],
        owner: str | None,
        workload: str | None,
    ) -> None:
        """Take note of an object.

        Args:
            kind, uid, namespace, name, labels: its own.
            owner: the uid of its first owner, None where it has none.
            workload: what it calls its workload itself, as Run:ai's do, else None.
        """
        if uid in self._names:
            return
        found = labels.get(LABEL_WORKLOAD) or workload
        if found is None and owner is not None:
            self._owners[uid] = owner
        if found is None:
            found = next((labels[each] for each in _LABELS if labels.get(each)), None)
            if found is not None and owner is not None:
                # A name that labels guess gives way to that of an owner, once it is known.
                self._guesses[uid] = found
                return
        if found is None and kind in self._own and owner is None:
            found = name
        if found is not None:
            self._names[uid] = found
        if kind == "PersistentVolumeClaim":
            self._claim_of[uid] = (namespace or "", name)

    def uses_claim(self, pod: str, namespace: str, claim: str) -> None:
        """Take note that a pod, by its uid, mounts a claim."""
        self._claims.setdefault((namespace, claim), pod)

    def workload(self, uid: str) -> str | None:
        """The workload of an object, by its uid; None where it is not known, or not yet."""
        guess = None
        for _ in range(_FARTHEST):
            found = self._names.get(uid)
            if found is not None:
                return found
            guess = guess or self._guesses.get(uid)
            claim = self._claim_of.get(uid)
            onward = self._owners.get(uid) or (self._claims.get(claim) if claim is not None else None)
            if onward is None:
                break
            uid = onward
        return guess
