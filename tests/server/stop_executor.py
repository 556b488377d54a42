"""Tells a driver of Spark to stop its executor, as any user of the machine can try: `stop_executor.py PORT…`.

Prints a line for each port: `stopped`, or the error that the port gave instead.
"""

from __future__ import annotations

import sys
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import launch_gateway


def main(ports: list[int]) -> None:
    """Ask each port."""
    gateway = launch_gateway()
    jvm = gateway.jvm
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.rpc.askTimeout", "10s").set("spark.app.id", "x")
    conf.set("spark.rpc.lookupTimeout", "10s")
    secret_file = module(jvm, "org.apache.spark.internal.config.package").AUTH_SECRET_FILE()
    manager = jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), secret_file)
    mine = jvm.org.apache.spark.rpc.RpcEnv.create("mine", "127.0.0.1", 0, conf, manager, True)
    for port in ports:
        try:
            driver = mine.setupEndpointRef(
                jvm.org.apache.spark.rpc.RpcAddress("127.0.0.1", port), "LocalSchedulerBackendEndpoint"
            )
            driver.askSync(
                module(jvm, "org.apache.spark.scheduler.local.StopExecutor"), jvm.scala.reflect.ClassTag.Any()
            )
            said = "stopped"
        except Py4JJavaError as error:
            said = str(error.java_exception).replace("\n", " ")[:300]
        sys.stdout.write(f"{said}\n")
    gateway.shutdown()


def module(jvm: Any, name: str) -> Any:
    """An object of Scala."""
    return getattr(getattr(jvm, f"{name}$"), "MODULE$")


if __name__ == "__main__":
    main([int(port) for port in sys.argv[1:]])
