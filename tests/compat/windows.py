"""The windows of producers, as the document says."""

from typing import Any


def note(producers: dict[int, Any], batch: dict[str, Any], frame: Any) -> None:
    """Remember where a producer's records went, by the rules of a window."""
    who = batch["producer_id"]
    if not who:
        return
    window = producers.setdefault(who, {"id": who, "epoch": 0, "runs": []})
    if window["epoch"] != batch["producer_epoch"]:
        window.update(epoch=batch["producer_epoch"], runs=[])
    sequence, llsn, count = batch["base_sequence"], frame["llsn"], frame["count"]
    last = window["runs"][-1] if window["runs"] else None
    if last and (last["sequence"] + last["count"], last["llsn"] + last["count"]) == (
        sequence,
        llsn,
    ):
        last["count"] += count
    else:
        window["runs"].append({"sequence": sequence, "llsn": llsn, "count": count})
        del window["runs"][:-8]
