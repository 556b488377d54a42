"""A real Kafka broker of a test's own, alone and without ZooKeeper (KRaft), on the loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.jvm.jars import JarSet
from spark_jobs.jvm.java import find_java
from tests.installations import listens

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER = JarSet(str(Path(__file__).parent / "extraction" / "jars-broker.lock"), "broker", "test")
"""What a broker is made of: for tests alone."""
_CONFIGURATION = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/log
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=1
num.io.threads=2
log.retention.ms=-1
"""


def broker_jars() -> str | None:
    """Fetch the broker's jars, 44 MB, where they are not there; None, or why they can't be had."""
    try:
        BROKER.fetch(Settings())
    except TidemarkError as refusal:
        return str(refusal)
    return None


class Broker:
    """The broker at an address. What is done to its topics is done by the client in the JVM of a classic session."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def create(self, spark: SparkSession, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic."""
        java, jvm = self._admin(spark)
        new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, 1)
        new = new.configs({name.replace("_", "."): value for name, value in settings.items()})
        java.createTopics([new]).all().get()
        java.close()

    def delete(self, spark: SparkSession, topic: str) -> None:
        """Remove a topic."""
        java, _ = self._admin(spark)
        java.deleteTopics([topic]).all().get()
        java.close()

    def expire(self, spark: SparkSession, topic: str, partition: int, before: int) -> None:
        """Remove what is before an offset."""
        java, jvm = self._admin(spark)
        place = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        # the class has a method of this name that is not static, too, which Py4J takes for the only one
        kind = f"{STATIC_PREFIX}org.apache.kafka.clients.admin.RecordsToDelete"
        before_offset = JavaMember("beforeOffset", None, kind, jvm._gateway_client)
        java.deleteRecords({place: before_offset(before)}).all().get()
        java.close()

    def send(
        self,
        spark: SparkSession,
        topic: str,
        *messages: tuple[int, datetime, bytes | None, bytes | None],
        commit: bool | None = None,
    ) -> None:
        """Messages of a partition, a time, a key and a value, in this order; in a transaction that is committed or
        aborted, if `commit` says so."""
        jvm: Any = spark._jvm
        properties = jvm.java.util.Properties()
        properties.put("bootstrap.servers", self.servers)
        if commit is not None:
            properties.put("transactional.id", uuid.uuid4().hex)
        serializer = jvm.org.apache.kafka.common.serialization.ByteArraySerializer
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(properties, serializer(), serializer())
        if commit is not None:
            producer.initTransactions()
            producer.beginTransaction()
        for partition, at, key, value in messages:
            ms = jvm.java.lang.Long.valueOf(str(round(at.timestamp() * 1000)))
            number = jvm.java.lang.Integer.valueOf(str(partition))
            record = jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, number, ms, key, value)
            producer.send(record).get()
        if commit is not None:
            producer.commitTransaction() if commit else producer.abortTransaction()
        producer.close()
        for partition in {one[0] for one in messages} if commit is not None else ():
            self._await_end(spark, topic, partition)

    def _await_end(self, spark: SparkSession, topic: str, partition: int) -> None:
        """Wait until the mark that ends a transaction is written: the broker answers before it is."""
        java, jvm = self._admin(spark)
        place = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        of_end = {place: jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()}
        levels, options = jvm.org.apache.kafka.common.IsolationLevel, jvm.org.apache.kafka.clients.admin

        def end(level: Any) -> int:
            asked = java.listOffsets(of_end, options.ListOffsetsOptions(level))
            return int(asked.partitionResult(place).get().offset())

        deadline = time.monotonic() + 30
        while end(levels.READ_COMMITTED) != end(levels.READ_UNCOMMITTED):
            assert time.monotonic() < deadline, f"a transaction of {topic} is open"
            time.sleep(0.05)
        java.close()

    def _admin(self, spark: SparkSession) -> tuple[Any, Any]:
        jvm: Any = spark._jvm
        properties = jvm.java.util.Properties()
        properties.put("bootstrap.servers", self.servers)
        return jvm.org.apache.kafka.clients.admin.AdminClient.create(properties), jvm


def _java(*command: str, wait: bool = True, log: Path | None = None) -> subprocess.Popen[bytes]:
    folder = BROKER.folder(Settings().jars)
    options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    with open(log or "/dev/null", "wb") as out:  # noqa: PTH123
        process = subprocess.Popen(
            [str(find_java().executable), *options, "-cp", f"{folder}/*", *command],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    if wait:
        assert process.wait(120) == 0, command
    return process


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker without topics, which ends with the block."""
    ports = []
    probes = [socket.socket() for _ in range(2)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
        ports.append(probe.getsockname()[1])
    for probe in probes:
        probe.close()
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "server.properties"
    configuration.write_text(_CONFIGURATION.format(port=ports[0], controller=ports[1], folder=folder))
    _java(
        *("kafka.tools.StorageTool", "format", "--cluster-id", "AAAAAAAAQAAAAAAAAAAAAA"),
        *("--config", str(configuration)),
        log=folder / "format.log",
    )
    process = _java("kafka.Kafka", str(configuration), wait=False, log=folder / "broker.log")
    try:
        deadline = time.monotonic() + 120
        while not listens(ports[0]):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "broker.log").read_text()[-3000:]
            time.sleep(0.2)
        yield Broker(f"127.0.0.1:{ports[0]}")
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
