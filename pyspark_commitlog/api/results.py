"""Values that public methods return, gathered from their rooms."""

from __future__ import annotations

from pyspark_commitlog.copying.comparison import Compared as Compared
from pyspark_commitlog.copying.copy import Copied as Copied
from pyspark_commitlog.copying.group_offsets import (
    CopiedGroup as CopiedGroup,
    KeptOffset as KeptOffset,
)
from pyspark_commitlog.copying.topic_copy import CopiedTopic as CopiedTopic
from pyspark_commitlog.groups.consumer_groups import Groups as Groups
from pyspark_commitlog.groups.descriptions import (
    GroupDescription as GroupDescription,
    GroupPartition as GroupPartition,
    MaintainedGroup as MaintainedGroup,
    MemberDescription as MemberDescription,
    OffsetReset as OffsetReset,
)
from pyspark_commitlog.model import (
    Record as Record,
    Recovered as Recovered,
    Repaired as Repaired,
    Replicated as Replicated,
    TopicPartition as TopicPartition,
)
from pyspark_commitlog.topic.access import Access as Access, Operation as Operation, Rule as Rule
from pyspark_commitlog.topic.damage.verify import RootReport as RootReport, TopicReport as TopicReport
from pyspark_commitlog.topic.damage.void import VoidedRange as VoidedRange
from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp as OffsetAndTimestamp
from pyspark_commitlog.topic.maintain.maintain import Maintained as Maintained
from pyspark_commitlog.topic_description import (
    Backlog as Backlog,
    ColumnDescription as ColumnDescription,
    PartitionDescription as PartitionDescription,
    ReplicaDescription as ReplicaDescription,
    ReplicationDescription as ReplicationDescription,
    RootDescription as RootDescription,
    SchemaDescription as SchemaDescription,
    TopicDescription as TopicDescription,
)
