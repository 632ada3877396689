"""The programs of the peers: which versions, and how they are fetched.

`go.mod` and `go.sum`, `pom.xml` and `kafka.sha256`, and `redis.txt` pin versions and
checksums.
"""
