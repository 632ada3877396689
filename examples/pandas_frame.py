"""Read a log into a pandas frame."""

import sys
import tempfile

import braidlog


def main(data: str) -> None:
    with braidlog.open(data) as store:
        log = store.create_log("temperatures", exist_ok=True)
        hour = 3_600_000_000
        log.append_many(
            [b"%d" % (10 + i % 24) for i in range(72)],
            timestamps=[i * hour for i in range(72)],
        )
        frame = log.to_arrow(columns=["timestamp", "value"]).to_pandas()
        frame["value"] = frame["value"].str.decode("ascii").astype(int)
        print(frame.groupby(frame["timestamp"].dt.date)["value"].agg(["min", "max"]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
