"""The values that methods of `CommitLog` and what it hands out return, gathered from the rooms that make them."""

from __future__ import annotations

from pyspark_commitlog.access import Access, Operation, Rule
from pyspark_commitlog.copying.comparison import Compared
from pyspark_commitlog.copying.copy import Copied
from pyspark_commitlog.copying.group_offsets import CopiedGroup, KeptOffset
from pyspark_commitlog.copying.topic_copy import CopiedTopic
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.groups.descriptions import (
    GroupDescription,
    GroupPartition,
    MaintainedGroup,
    MemberDescription,
    OffsetReset,
)
from pyspark_commitlog.log.maintain.run import Maintained
from pyspark_commitlog.log.read.timestamps import OffsetAndTimestamp
from pyspark_commitlog.log.repair.verify import RootReport, TopicReport
from pyspark_commitlog.log.repair.void import VoidedRange
from pyspark_commitlog.model import (
    Backlog,
    PartitionDescription,
    Record,
    Recovered,
    Repaired,
    ReplicaDescription,
    Replicated,
    ReplicationDescription,
    RootDescription,
    TopicDescription,
    TopicPartition,
)

__all__ = [
    "Access",
    "Backlog",
    "Compared",
    "Copied",
    "CopiedGroup",
    "CopiedTopic",
    "GroupDescription",
    "GroupPartition",
    "Groups",
    "KeptOffset",
    "Maintained",
    "MaintainedGroup",
    "MemberDescription",
    "OffsetAndTimestamp",
    "OffsetReset",
    "Operation",
    "PartitionDescription",
    "Record",
    "Recovered",
    "Repaired",
    "ReplicaDescription",
    "Replicated",
    "ReplicationDescription",
    "RootDescription",
    "RootReport",
    "Rule",
    "TopicDescription",
    "TopicPartition",
    "TopicReport",
    "VoidedRange",
]
