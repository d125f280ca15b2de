"""Storage on other filesystems that fsspec knows, and on HDFS by WebHDFS."""
