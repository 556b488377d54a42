package org.apache.spark.sql.hive.thriftserver.tidemark

import java.lang.management.{ManagementFactory, MemoryNotificationInfo, MemoryType}
import java.util.concurrent.TimeUnit
import javax.management.{Notification, NotificationEmitter}

import scala.jdk.CollectionConverters._

import org.apache.spark.util.ThreadUtils

/** The heap that runs and readers share. Where more than a share of it is in use after Java has collected, readers'
  * statements end and none begins: what is left is the pipeline's.
  */
object Heap {

  /** When to collect for readers who wait, in seconds: at first, and as long as there is no room. A collection stops
    * everybody for some tenths of a second.
    */
  private val FIRST_S = 5L
  private val LATER_S = 30L

  /** How far above the readers' share the heap is collected beside readers, in percent of it. */
  private val EARLY = 5L

  private val pool = ManagementFactory.getMemoryPoolMXBeans.asScala
    .filter(each => each.getType == MemoryType.HEAP && each.isCollectionUsageThresholdSupported)
    .maxBy(_.getUsage.getMax)
  private var collected = System.nanoTime
  private val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("readers-heap")

  /** Watch the heap.
    *
    * @param passed is called when the heap is fuller than readers may make it
    * @param readersWork whether a reader's statement is at work: what fills the heap may be its rows
    */
  def watch(passed: () => Unit, readersWork: () => Boolean): Unit = {
    // some collectors give their pools no bound
    val size = Some(pool.getUsage.getMax).filter(_ > 0).getOrElse(Runtime.getRuntime.maxMemory)
    pool.setCollectionUsageThreshold(size / 100 * Limit.heap.most)
    if (pool.isUsageThresholdSupported) pool.setUsageThreshold(size / 100 * math.min(Limit.heap.most + EARLY, 99))
    ManagementFactory.getMemoryMXBean.asInstanceOf[NotificationEmitter].addNotificationListener(
      (notice: Notification, _: Any) =>
        notice.getType match {
          case MemoryNotificationInfo.MEMORY_COLLECTION_THRESHOLD_EXCEEDED =>
            passed()
            look(FIRST_S)
          // only a collection shows how much is garbage, and Java puts it off until there is no room at all
          case MemoryNotificationInfo.MEMORY_THRESHOLD_EXCEEDED => if (readersWork() && !isFull) collectEarly()
          case _ =>
        },
      null,
      null
    )
  }

  /** Collect the heap, but not soon after the last time: Java sends its notice for each of its own collections, too. */
  private def collectEarly(): Unit = {
    val now = System.nanoTime
    if (now - collected > TimeUnit.SECONDS.toNanos(FIRST_S)) {
      collected = now
      System.gc()
    }
  }

  private def look(seconds: Long): Unit = clock.schedule(
    (
        () =>
          if (isFull) {
            System.gc()
            if (isFull) look(LATER_S)
          }
    ): Runnable,
    seconds,
    TimeUnit.SECONDS
  )

  def isFull: Boolean = pool.isCollectionUsageThresholdExceeded
}
