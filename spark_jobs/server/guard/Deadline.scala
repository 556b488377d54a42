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
    try work finally ofThread.set(outer)
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
  private val GRACE_S = 5L
  private val MOST_LOOKS = 60

  private val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("readers-ends")

  /** Stop the threads of a statement that still compute in a while.
    *
    * @param onWorker calls a function with the thread that resolves the statement or fetches its rows, if one does, and
    *   keeps it from leaving the statement meanwhile: after that it serves other statements. True if there is one
    * @param group the statement's jobs
    */
  def after(context: SparkContext, group: String, onWorker: (Thread => Unit) => Boolean, looks: Int = MOST_LOOKS): Unit =
    clock.schedule((() => {
      val works = onWorker(thread => if (mayStop(thread)) stop(thread))
      val stages = stagesOf(context, group)
      val left = if (stages.isEmpty) Nil else threads().filter(isOf(_, stages))
      // looking takes a while, in which a thread may have begun another statement's task
      left.filter(thread => mayStop(thread) && isOf(thread, stages)).foreach(stop)
      if ((works || left.nonEmpty) && looks > 0) after(context, group, onWorker, looks - 1)
    }): Runnable, if (looks == MOST_LOOKS) GRACE_S else 1L, TimeUnit.SECONDS)

  private def stagesOf(context: SparkContext, group: String): Set[Int] = {
    val status = context.statusTracker
    status.getJobIdsForGroup(group).flatMap(status.getJobInfo(_)).flatMap(_.stageIds).toSet
  }

  /** Whether a thread computes a task of these stages. */
  private def isOf(thread: Thread, stages: Set[Int]): Boolean =
    Task.findFirstMatchIn(thread.getName).exists(found => stages(found.group(1).toInt))

  private def threads(): Seq[Thread] = {
    val root = Iterator.iterate(Thread.currentThread.getThreadGroup)(_.getParent).takeWhile(_ != null).toSeq.last
    val several = new Array[Thread](2 * root.activeCount + 100)
    several.take(root.enumerate(several)).toSeq
  }

  /** As Spark names the thread of a task. */
  private val Task = raw"^Executor task launch worker for task .* in stage (\d+)\.".r

  /** Whether a thread computes, and holds nothing that others need: the catalog, a table's log, a class that is loaded. */
  private def mayStop(thread: Thread): Boolean =
    thread.getState == Thread.State.RUNNABLE && !thread.getStackTrace.exists { frame =>
      frame.getMethodName == "<clinit>" || Shared.exists(frame.getClassName.startsWith)
    }

  private val Shared = Seq(
    "java.lang.ClassLoader", "org.apache.derby.", "org.apache.hadoop.fs.", "org.apache.hadoop.hive.metastore.",
    "org.apache.hadoop.hive.ql.metadata.", "org.apache.spark.sql.hive.client.", "org.apache.spark.storage.",
    "org.apache.spark.memory.")

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
