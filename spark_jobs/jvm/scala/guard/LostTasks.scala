package org.apache.spark.scheduler.tidemark

import java.util.concurrent.TimeUnit

import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkContext, SparkEnv, TaskFailedReason, TaskKilled, TaskState}
import org.apache.spark.executor.ExecutorBackend
import org.apache.spark.scheduler.TaskSchedulerImpl
import org.apache.spark.sql.hive.thriftserver.tidemark.{Notices, Threads}
import org.apache.spark.util.ThreadUtils

/** Repeats tasks of an embedded executor whose thread ended without a report to the scheduler.
  *
  * A thread that runs out of memory, or is stopped, while it reports how its task ended reports nothing. Spark would then
  * believe for ever that the task computes, and its core would be lost.
  */
object LostTasks {
  private val LOOK_S = 5L

  /** A task is lost that had no thread in so many looks. Its thread begins some milliseconds after the scheduler's entry. */
  private val LOOKS = 3

  private val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("lost-tasks")

  def watch(context: SparkContext): Unit = (context.taskScheduler, context.schedulerBackend) match {
    // an executor of another process reports by its heartbeat
    case (scheduler: TaskSchedulerImpl, backend: ExecutorBackend) =>
      var looks = Map.empty[Long, Int]
      clock.scheduleWithFixedDelay(
        (() => looks = look(scheduler, backend, looks)): Runnable,
        LOOK_S,
        LOOK_S,
        TimeUnit.SECONDS
      )
    case _ =>
  }

  /** Looks for the threads of the scheduler's tasks. Takes and returns how often in a row each task had none. */
  private def look(scheduler: TaskSchedulerImpl, backend: ExecutorBackend, before: Map[Long, Int]): Map[Long, Int] =
    try {
      val expected = scheduler.taskIdToTaskSetManager.keySet.asScala.toSet
      val missing = if (expected.isEmpty) expected else expected -- Threads.all.flatMap(Threads.taskOf)
      val (lost, others) = missing.map(id => id -> (before.getOrElse(id, 0) + 1)).partition(_._2 >= LOOKS)
      lost.foreach { case (id, _) => repeat(backend, id) }
      others.toMap
    } catch {
      case _: OutOfMemoryError => before // the next look may have room
    }

  private def repeat(backend: ExecutorBackend, id: Long): Unit = {
    val reason = TaskKilled("its thread ended without a report")
    val data = SparkEnv.get.closureSerializer.newInstance().serialize[TaskFailedReason](reason)
    backend.statusUpdate(id, TaskState.KILLED, data)
    Notices.add(s"the task $id had no thread for ${LOOK_S * LOOKS} s; it is repeated if its job goes on")
  }
}
