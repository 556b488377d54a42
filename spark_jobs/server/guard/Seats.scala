package org.apache.spark.sql.hive.thriftserver.tidemark

import java.util.concurrent.{ScheduledFuture, Semaphore, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

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

/** Where a statement sits. It keeps its seat while a client that has its answer comes for the rows. */
final class Place {
  private val COMES_BACK_MS = 250L

  private var seat: Option[Seats.Seat] = None
  private var gone: Option[ScheduledFuture[_]] = None
  private var inside = 0

  /** Sit down, waiting for up to `most` milliseconds; false if there was no seat by then. */
  def enter(most: Long): Boolean = {
    val sits = synchronized {
      gone.foreach(_.cancel(false))
      gone = None
      inside += 1
      inside > 1 || seat.exists(_.isTaken)
    }
    // waiting holds no lock: whoever ends the statement must get through
    sits || {
      var taken: Option[Seats.Seat] = None
      try taken = Seats.take(most)
      finally synchronized {
        seat = taken
        if (taken.isEmpty) inside -= 1
      }
      taken.isDefined
    }
  }

  /** The work is done for now. */
  def idle(): Unit = synchronized {
    inside -= 1
    if (inside == 0) gone = Some(Seats.later(COMES_BACK_MS)(leave()))
  }

  /** Get up. */
  def leave(): Unit = synchronized {
    gone.foreach(_.cancel(false))
    gone = None
    seat.foreach(_.leave())
    seat = None
  }
}
