package org.apache.spark.sql.hive.thriftserver.tidemark

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, StandardCopyOption}
import java.util.concurrent.TimeUnit

import scala.util.control.NonFatal

import org.apache.spark.SparkContext
import org.apache.spark.util.ThreadUtils
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

/** Writes the executors of the server into a file, whenever they change: their ids, hosts and cores.
  *
  * Programs beside the server read it. A statement could not tell: without executors it has no answer.
  */
object Executors {
  private val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("executors")

  def watch(context: SparkContext, file: Path): Unit = {
    var written = ""
    clock.scheduleWithFixedDelay(
      (
          () =>
            try {
              val now = describe(context)
              if (now != written) {
                val draft = file.resolveSibling(s"${file.getFileName}.draft")
                Files.write(draft, now.getBytes(UTF_8))
                Files.move(draft, file, StandardCopyOption.ATOMIC_MOVE)
                written = now
              }
            } catch {
              case NonFatal(error) => System.err.println(s"the executors could not be written down: $error")
            }
      ): Runnable,
      0,
      1,
      TimeUnit.SECONDS
    )
  }

  /** An embedded executor is the driver itself. */
  private def describe(context: SparkContext): String = {
    val executors = context.statusStore.executorList(true).filter(context.isLocal || _.id != "driver")
    compact(render(executors.sortBy(_.id).map(executor =>
      ("id" -> executor.id) ~ ("host" -> executor.hostPort.split(":").head) ~ ("cores" -> executor.totalCores)
    )))
  }
}
