"""One of each message, with a payload that it allows."""

from braidlog.wire import messages as m
from braidlog.wire.messages import Message
from braidlog.wire.tables import IndexInfo, IndexStatus, TableInfo

LOG = bytes(range(16))
RUN = m.Run(llsn_begin=1, glsn_begin=5, length=3)
CUT = m.LogCut(LOG, 9, 40, (m.StreamRun(3, 1, 38, 3),))
CONFIG = m.StreamConfig(
    stream=3,
    log=LOG,
    name="orders",
    epoch=2,
    status=m.StreamStatus.RUNNING,
    replicas=(1, 2),
    learners=(3,),
    start=1,
    epochs=((1, 1),),
    version=8,
    high_watermark=37,
    trim=1,
    options=b"o",
)
STREAM = m.StreamInfo(
    3,
    2,
    m.StreamStatus.SEALED,
    (1, 2),
    (3,),
    4,
    (1,),
    (2,),
    1500,
    (2, 3),
    "node 2 is lost",
)
INFO = m.LogInfo(LOG, "orders", (STREAM,), 9, 40, 1, 2, 1, b"o", 1_700_000_000_000_000)
NODE = m.NodeInfo(1, "localhost:7400", True, True, False, LOG, True, 1500, 2, 700)
INDEX = IndexInfo(LOG, "city", b"json:/city", IndexStatus.BUILDING, "why")
TABLE = TableInfo(
    LOG, "stock", LOG, LOG, 3, 1_700_000_000_000_000, 2, b"o", (INDEX,), (1, 2), (1,)
)
APP = m.AppStatus(
    application="bank",
    partitions=2,
    host=LOG,
    active=True,
    epoch=3,
    active_host=LOG,
    ready=True,
    why="",
    applied=40,
    end=41,
    first=1,
    calls=30,
    waiting=2,
    connections=1,
    executed=38,
    busy_us=1500,
    stopped=(1,),
    mismatches=1,
    kept=39,
    snapshot=20,
    snapshot_us=1_700_000_000_000_000,
    hashes=(LOG, LOG),
    level="full",
    since_bytes=4096,
    since_us=2500,
    failures=1,
    alarms=("reserve: no space",),
)

EXAMPLES: list[tuple[Message, bytes]] = [
    (m.Hello(1, 1, "test", 3, "", "braidlog 1", LOG, 12, LOG * 2, LOG), b""),
    (m.Welcome(1, "test", 1, "admin", 1 << 25, 1 << 24, LOG, 12), b""),
    (m.Goodbye("done"), b""),
    (m.Ping(1.5), b""),
    (m.Pong(1.5), b""),
    (m.Failed(20, "trimmed", {"first": 7}, False), b""),
    (m.Challenge(1, LOG * 2, LOG * 2), b""),
    (m.Proof(b"masked"), b""),
    (m.Append(3, 2), b"batch"),
    (m.Appended(1, 38, 3, 9), b""),
    (m.Read(3, 1, True, 4096, 100), b""),
    (m.Records(3, (RUN,), (1, 3), (2, 3), 7, 1, 4), b"aabbb"),
    (m.GetMetadata(7, 100, True, True), b""),
    (m.Metadata(7, 1, "test", (NODE,), (INFO,), (TABLE,), False), b""),
    (m.Execute(b"c" * 16), b"command"),
    (m.Executed(8), b"result"),
    (m.GetLogEnd(LOG, 7), b""),
    (m.LogEnd(8, 40, (TABLE,)), b""),
    (m.Consensus(1), b"raft"),
    (m.Replicate(3, 2, 1, (2, 3)), b"aabbb"),
    (m.Fetch(3, 2, 11, 1, 4096, False), b""),
    (m.Entries(3, 2, 11, 1, (2, 3), (RUN,), 9, 40, 4, 6), b"aabbb"),
    (
        m.Report(1, 2, 3, True, (m.StreamReport(3, 2, 9, 4, 6, 1),), 2, 900, 800),
        b"",
    ),
    (m.Commit((CUT,)), b""),
    (m.Configure(8, (CONFIG,), (4,)), b""),
    (m.Faults(1, 4, (1, 2, 3), (2,), True), b""),
    (m.Recorded(3, 1, 4, True), b""),
    (m.Call(LOG, "deposit", 5000, 1000, 2), b"arguments"),
    (m.CallResult(40, 0, "deposit", 41), b"result"),
    (m.GetAppStatus(True), b""),
    (APP, b""),
    (m.Promote(), b""),
    (m.FetchSnapshot(1, 2, 4096, 8192), b""),
    (m.SnapshotPart(1, 40, (8192, 4096), (LOG, LOG)), b"bytes"),
    (m.TakeSnapshot(2), b""),
    (m.SnapshotProgress(2, 8192, 8192, 7, 40, 4096, 2500, 33), b""),
    (m.GetRows(LOG, (b"tea", b""), 40, 38, 1000), b""),
    (m.ScanRows(LOG, LOG, b"a", None, True, 10, 4096, 40, 38, 1000, 5000, 7), b""),
    (m.Rows(40, (7, 39), (0, 2), b"tea"), b"batch"),
    (m.GetTable(LOG, 38, 1000), b""),
    (m.TableStatus(40, 30, 1, True, {"runs": 3, "state": "whole"}), b""),
    (m.PinRuns(LOG, 5000), b""),
    (m.PinnedRuns(1, 30, (m.PinnedFile("0a/1.run", 4096, 7),)), b""),
    (m.FetchRun(1, "0a/1.run", 0, 4096), b""),
    (m.RunPart(0), b"bytes"),
    (m.UnpinRuns(1), b""),
    (m.FlushTable(LOG, 38, 1000), b""),
    (m.VerifyTable(LOG, LOG, 38, 1000), b""),
    (m.TableCheck(4000, True, 300, 250, "a page", "0a/1.run", 4096), b""),
    (m.ReleaseRows(LOG, 40, 7), b""),
]
