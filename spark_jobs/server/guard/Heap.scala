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

  private val pool = ManagementFactory.getMemoryPoolMXBeans.asScala
    .filter(each => each.getType == MemoryType.HEAP && each.isCollectionUsageThresholdSupported)
    .maxBy(_.getUsage.getMax)
  private val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("readers-heap")

  /** Watch the heap; `passed` is called when it is fuller than readers may make it. */
  def watch(passed: () => Unit): Unit = {
    // some collectors give their pools no bound
    val size = Some(pool.getUsage.getMax).filter(_ > 0).getOrElse(Runtime.getRuntime.maxMemory)
    pool.setCollectionUsageThreshold(size / 100 * Limit.heap.most)
    ManagementFactory.getMemoryMXBean.asInstanceOf[NotificationEmitter].addNotificationListener(
      (notice: Notification, _: Any) =>
        if (notice.getType == MemoryNotificationInfo.MEMORY_COLLECTION_THRESHOLD_EXCEEDED) {
          passed()
          look(FIRST_S)
        },
      null, null)
  }

  private def look(seconds: Long): Unit = clock.schedule((() =>
    if (isFull) {
      System.gc()
      if (isFull) look(LATER_S)
    }): Runnable, seconds, TimeUnit.SECONDS)

  def isFull: Boolean = pool.isCollectionUsageThresholdExceeded
}
