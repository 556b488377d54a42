package org.apache.spark.sql.hive.thriftserver.tidemark

import java.util.concurrent.TimeUnit

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.util.ThreadUtils

/** The end of a reader's statement while it is resolved and optimized: a rule that fails once the time is over. Spark looks
  * at it in each round of its rules; one round of a statement within [[Bounds]] is short.
  */
object Deadline extends Rule[LogicalPlan] {
  private val ofThread = new ThreadLocal[() => Option[Throwable]]

  /** Do the work of a statement; `failure` says whether the statement has ended meanwhile, and why. */
  def within[A](failure: () => Option[Throwable])(work: => A): A = {
    val outer = ofThread.get
    ofThread.set(failure)
    try work
    finally ofThread.set(outer)
  }

  override def apply(plan: LogicalPlan): LogicalPlan = {
    Option(ofThread.get).flatMap(_.apply()).foreach(failure => throw failure)
    plan
  }
}

/** Ends threads that compute for a statement that is over. One row may take a regular expression or a function of two
  * texts for years, and neither looks whether it was cancelled.
  *
  * Java stops a thread only up to version 19. On a cluster Spark ends the executor of such a task
  * (`spark.task.reaper.enabled`).
  */
object Stopping {
  private val MOST_LOOKS = 60

  private val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("readers-ends")

  /** Stop the threads of a statement that still compute in some seconds, and look again each second.
    *
    * @param onWorker calls a function with the thread that resolves the statement or fetches its rows, if one does, and
    *   keeps it from leaving the statement meanwhile: after that it serves other statements. True if there is one
    * @param group the statement's jobs
    */
  def after(
      seconds: Long,
      context: SparkContext,
      group: String,
      onWorker: (Thread => Unit) => Boolean,
      looks: Int = MOST_LOOKS
  ): Unit =
    clock.schedule(
      (() => {
        val works = onWorker(thread => if (mayStop(thread)) stop(thread))
        val stages = stagesOf(context, group)
        val left = if (stages.isEmpty) Nil else Threads.all.filter(isOf(_, stages))
        // looking takes a while, in which a thread may have begun another statement's task
        left.filter(thread => mayStop(thread) && computes(thread) && isOf(thread, stages)).foreach(stop)
        if ((works || left.nonEmpty) && looks > 0) after(1, context, group, onWorker, looks - 1)
      }): Runnable,
      seconds,
      TimeUnit.SECONDS
    )

  private def stagesOf(context: SparkContext, group: String): Set[Int] = {
    val status = context.statusTracker
    status.getJobIdsForGroup(group).flatMap(status.getJobInfo(_)).flatMap(_.stageIds).toSet
  }

  /** Whether a thread has a task of these stages. */
  private def isOf(thread: Thread, stages: Set[Int]): Boolean = Threads.stageOf(thread).exists(stages)

  /** Whether a thread is within its task. One that reports how a task ended must not be stopped: see `LostTasks`. */
  private def computes(thread: Thread): Boolean =
    thread.getStackTrace.exists(frame =>
      frame.getClassName == "org.apache.spark.scheduler.Task" && frame.getMethodName == "run"
    )

  /** Whether a thread computes, and holds nothing that others need: the catalog, a table's log, a class that is loaded. */
  private def mayStop(thread: Thread): Boolean =
    thread.getState == Thread.State.RUNNABLE && !thread.getStackTrace.exists { frame =>
      frame.getMethodName == "<clinit>" || Shared.exists(frame.getClassName.startsWith)
    }

  private val Shared = Seq(
    "java.lang.ClassLoader",
    "org.apache.derby.",
    "org.apache.hadoop.fs.",
    "org.apache.hadoop.hive.metastore.",
    "org.apache.hadoop.hive.ql.metadata.",
    "org.apache.spark.sql.hive.client.",
    "org.apache.spark.storage.",
    "org.apache.spark.memory."
  )

  @annotation.nowarn
  private def stop(thread: Thread): Unit =
    try {
      Notices.add(s"the thread ${thread.getName} of a reader's statement whose time was over is stopped")
      thread.stop()
    } catch {
      case _: UnsupportedOperationException =>
        Notices.add("this Java stops no thread: a reader's statement goes on computing; Java 17 would have stopped it")
    }
}

/** The threads of this process, and their tasks. */
object Threads {

  /** As Spark names the thread of a task. */
  private val OfTask = raw"^Executor task launch worker for task .* in stage (\d+)\.\d+ \(TID (\d+)\)".r

  def all: Seq[Thread] = {
    val root = Iterator.iterate(Thread.currentThread.getThreadGroup)(_.getParent).takeWhile(_ != null).toSeq.last
    val several = new Array[Thread](2 * root.activeCount + 100)
    several.take(root.enumerate(several)).toSeq
  }

  def stageOf(thread: Thread): Option[Int] = OfTask.findFirstMatchIn(thread.getName).map(_.group(1).toInt)

  def taskOf(thread: Thread): Option[Long] = OfTask.findFirstMatchIn(thread.getName).map(_.group(2).toLong)
}
