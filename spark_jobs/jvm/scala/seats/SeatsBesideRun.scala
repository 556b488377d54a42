package org.apache.spark.sql.hive.thriftserver.tidemark

import java.lang.management.ManagementFactory
import java.util.ArrayDeque
import java.util.concurrent.TimeUnit

import com.sun.management.OperatingSystemMXBean

/** Seats of readers while a run works, first come, first served.
  *
  * One reader takes turns with the run: when it gets up, the run has the cores to itself for a time in proportion. What
  * the run leaves idle is nobody's turn: a reader sits down at once where a core has nothing to do, as long as one other
  * core is the run's alone.
  */
private final class SeatsBesideRun(cores: Int) {
  import SeatsBesideRun._

  private val waiting = new ArrayDeque[Waiter]
  private var sitting = 0
  private var turnOfRunEnds = System.nanoTime
  private var watching = false

  /** Wait for a seat until a time of `System.nanoTime`; what to call when it is left, or none if there was none by then. */
  def take(deadline: Long): Option[Long => Unit] = synchronized {
    val waiter = new Waiter
    waiting.add(waiter)
    watch()
    var leaving: Option[Long => Unit] = None
    try {
      while (!waiter.sits && deadline - System.nanoTime > 0)
        TimeUnit.NANOSECONDS.timedWait(this, math.max(1000000L, deadline - System.nanoTime))
      if (waiter.sits) leaving = Some(leave)
      leaving
    } finally if (leaving.isEmpty) {
        // who is interrupted may have been given a seat in that moment
        if (waiter.sits) giveBack() else waiting.remove(waiter)
      }
  }

  private def leave(took: Long): Unit = synchronized {
    turnOfRunEnds = System.nanoTime + (took * (1 / SHARE - 1)).toLong
    giveBack()
  }

  private def giveBack(): Unit = {
    sitting -= 1
    seat(0)
  }

  /** As long as somebody waits, look now and then for a core that is idle, and for the end of the run. */
  private def watch(): Unit = if (!watching) {
    watching = true
    idleCores() // counts from the last look, which may be long ago
    seat(0)
    Seats.later(LOOK_MS)(look())
  }

  private def look(): Unit = synchronized {
    try seat(idleCores())
    finally {
      watching = !waiting.isEmpty
      if (watching) Seats.later(LOOK_MS)(look())
    }
  }

  /** Let those who waited longest sit down, where there is a seat. */
  private def seat(idle: Double): Unit = {
    var left = idle
    def isReaders = sitting == 0 && System.nanoTime - turnOfRunEnds >= 0
    def isIdle = left >= IDLE && sitting < cores - 1
    while (!waiting.isEmpty && (isReaders || isIdle || !Seats.runWorks)) {
      if (!isReaders) left -= 1
      sitting += 1
      waiting.poll().sits = true
      notifyAll()
    }
  }

  /** How many cores had nothing to do since the last look; 0 where the system does not say. */
  private def idleCores(): Double = {
    val load = system.getCpuLoad
    if (load >= 0) cores * (1 - load) else 0
  }
}

private object SeatsBesideRun {

  /** Of the time of a run that needs all cores, what readers take together. */
  val SHARE = 0.5

  /** The part of a core's time without work by which it counts as idle. */
  val IDLE = 0.75

  val LOOK_MS = 20L

  private val system = ManagementFactory.getPlatformMXBean(classOf[OperatingSystemMXBean])

  private final class Waiter {
    var sits = false
  }
}
