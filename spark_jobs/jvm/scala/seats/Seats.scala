package org.apache.spark.sql.hive.thriftserver.tidemark

import java.util.concurrent.{ScheduledFuture, Semaphore, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger
import java.util.concurrent.locks.ReentrantLock

import org.apache.spark.sql.connect.service.SparkConnectService
import org.apache.spark.util.ThreadUtils

/** Seats that readers' statements wait for, first come, first served.
  *
  * A scheduler's pool shares out tasks; a question over small tables is planning, code and lists of files, which nothing
  * shares out: twenty readers made a run four times as long. As many readers work at a time as there are cores. While a
  * run works they take turns with it, see [[SeatsBesideRun]].
  */
object Seats {

  /** A statement that takes longer goes on without a seat: by then it is tasks. */
  private val LONGEST_MS = 3000L

  /** A run has moments without a statement: it counts as working for so long after one. */
  private val LINGER_NS = TimeUnit.SECONDS.toNanos(2)

  private val cores = Runtime.getRuntime.availableProcessors
  private val atRest = new Semaphore(math.max(2, cores), true)
  private val besideRun = new SeatsBesideRun(cores)
  private val writing = new AtomicInteger
  @volatile private var wrote = System.nanoTime - LINGER_NS
  private val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("readers-seats")

  /** Do something after a while, in a thread that many share: nothing that takes long. */
  def later(ms: Long)(action: => Unit): ScheduledFuture[_] =
    clock.schedule((() => action): Runnable, ms, TimeUnit.MILLISECONDS)

  /** What a writer's statement does: publishing builds marts over JDBC. */
  def write[A](statement: => A): A = {
    writing.incrementAndGet()
    try statement
    finally {
      wrote = System.nanoTime
      writing.decrementAndGet()
    }
  }

  /** Whether a run works, or did just now. */
  def runWorks: Boolean = {
    def justNow(nanoTime: Long) = System.nanoTime - nanoTime < LINGER_NS
    writing.get > 0 || justNow(wrote) ||
    SparkConnectService.listActiveExecutions.fold(last => justNow(last.asInstanceOf[Long]), _ => true)
  }

  /** Wait for a seat for up to `most` milliseconds; none if there was none by then. */
  def take(most: Long): Option[Seat] = {
    // not the wall clock, which may jump while somebody waits
    val deadline = System.nanoTime + TimeUnit.MILLISECONDS.toNanos(most)
    if (!atRest.tryAcquire(most, TimeUnit.MILLISECONDS)) None
    else {
      var seat: Option[Seat] = None
      try {
        val leave = if (runWorks) besideRun.take(deadline) else Some((_: Long) => ())
        seat = leave.map(new Seat(_))
        seat
      } finally if (seat.isEmpty) atRest.release()
    }
  }

  /** A seat that is taken, until it is left or time is up; whoever gave it is told after how many nanoseconds. */
  final class Seat(left: Long => Unit) {
    private val taken = System.nanoTime
    @volatile private var taking = true
    private val end = later(LONGEST_MS)(leave())

    def isTaken: Boolean = taking

    def leave(): Unit = synchronized {
      if (taking) {
        taking = false
        end.cancel(false)
        left(System.nanoTime - taken)
        atRest.release()
      }
    }
  }
}

/** The seat of one statement, which one call at a time works on. The statement keeps its seat while a client that has its
  * answer comes for the rows.
  */
final class Place {
  private val COMES_BACK_MS = 250L

  /** Held by the call that waits for the seat or works. Whoever ends the statement does without it. */
  private val call = new ReentrantLock
  private var seat: Option[Seats.Seat] = None
  private var gone: Option[ScheduledFuture[_]] = None

  /** Sit down, waiting for up to `most` milliseconds; false if there was no seat by then. A call within a call that sits has
    * its seat; a second call waits until the first is done.
    */
  def enter(most: Long): Boolean =
    if (call.isHeldByCurrentThread) {
      call.lock()
      true
    } else {
      // not the wall clock, which may jump while somebody waits
      val deadline = System.nanoTime + TimeUnit.MILLISECONDS.toNanos(most)
      call.tryLock(most, TimeUnit.MILLISECONDS) && {
        var sits = false
        try {
          sits = comesBack() || sit(TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime))
          sits
        } finally if (!sits) call.unlock()
      }
    }

  private def comesBack(): Boolean = synchronized {
    gone.foreach(_.cancel(false))
    gone = None
    seat.exists(_.isTaken)
  }

  private def sit(most: Long): Boolean = {
    val taken = Seats.take(most)
    synchronized { seat = taken }
    taken.isDefined
  }

  /** The work is done for now. */
  def idle(): Unit = {
    if (call.getHoldCount == 1) synchronized { gone = Some(Seats.later(COMES_BACK_MS)(leave())) }
    call.unlock()
  }

  /** Get up. */
  def leave(): Unit = synchronized {
    gone.foreach(_.cancel(false))
    gone = None
    seat.foreach(_.leave())
    seat = None
  }
}
