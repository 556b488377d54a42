package org.apache.spark.sql.hive.thriftserver.tidemark

import java.util.{Map => JMap, Set => JSet}
import java.util.concurrent.{ConcurrentHashMap, ScheduledFuture, TimeUnit}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}

import org.apache.hive.service.cli.{FetchOrientation, HiveSQLException, OperationHandle, OperationState, SessionHandle}
import org.apache.hive.service.cli.operation.{ExecuteStatementOperation, Operation}
import org.apache.hive.service.cli.session.HiveSession
import org.apache.hive.service.rpc.thrift._
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.hive.thriftserver.{ReflectionUtils, SparkExecuteStatementOperation}
import org.apache.spark.sql.hive.thriftserver.server.SparkSQLOperationManager
import org.apache.spark.util.ThreadUtils
import org.apache.thrift.TSerializer
import org.apache.thrift.protocol.TBinaryProtocol

/** A limit on what readers ask of the driver that runs share: its name, what it allows, and the knob that sets it. */
final case class Limit(name: String, most: Long, unit: String, knob: String) {
  def passed(user: String, advice: String, consequence: String = "statement was ended"): HiveSQLException =
    new HiveSQLException(
      s"limit_$name: expected at most $most $unit for the reader $user, found more; the $consequence; $advice, or ask " +
        s"whoever runs this lake to raise $knob and to run `tidemark up`"
    )
}

object Limit {
  private def of(name: String, unit: String) =
    Limit(name, Logins.setting(s"reader.$name").toLong, unit, s"TIDEMARK_READER_${name.toUpperCase}")

  lazy val seconds: Limit = of("seconds", "seconds from a statement's start to its last row")
  lazy val rows: Limit = of("rows", "rows of a result")
  lazy val bytes: Limit = of("bytes", "bytes of a result")
  lazy val statements: Limit = of("statements", "statements at a time")
  lazy val sessions: Limit = of("sessions", "sessions at a time")
  lazy val heap: Limit = of("heap", "percent of the heap in use")
  lazy val sessionsOfAll: Limit = sessions.copy(most = 10 * sessions.most, unit = "sessions of all readers at a time")
}

/** Makes the operations of statements: those of readers have limits. */
class Statements extends SparkSQLOperationManager {
  val principals = new ConcurrentHashMap[SessionHandle, Principal]
  private val running = new ConcurrentHashMap[String, AtomicInteger]

  Heap.watch(() => ReadersStatement.atWork.forEach(_.endForHeap()), () => !ReadersStatement.atWork.isEmpty)

  // Spark looks for its map in the class above its own, which here is its own
  ReflectionUtils.setSuperField(
    this,
    "handleToOperation",
    ReflectionUtils.getAncestorField[JMap[OperationHandle, Operation]](this, 2, "handleToOperation")
  )

  override def newExecuteStatementOperation(
      parent: HiveSession,
      statement: String,
      overlay: JMap[String, String],
      async: Boolean,
      timeout: Long
  ): ExecuteStatementOperation = synchronized {
    val principal = principals.get(parent.getSessionHandle)
    require(principal != null, "a session that no login opened")
    val session = sessionToContexts.get(parent.getSessionHandle)
    val operation =
      if (principal.isWriter) new WritersStatement(session, parent, statement, overlay, async, timeout)
      else {
        val count = running.computeIfAbsent(principal.user, _ => new AtomicInteger)
        new ReadersStatement(session, parent, statement, overlay, async, timeout, principal.user, count)
      }
    handleToOperation.put(operation.getHandle, operation)
    operation
  }
}

/** A statement that readers give way to. */
class WritersStatement(
    session: SparkSession,
    parent: HiveSession,
    text: String,
    overlay: JMap[String, String],
    async: Boolean,
    timeout: Long
) extends SparkExecuteStatementOperation(session, parent, text, overlay, async, timeout) {
  override def runInternal(): Unit = Seats.write(super.runInternal())

  // what runs in the background, and what is fetched
  override def withLocalProperties[A](work: => A): A = Seats.write(super.withLocalProperties(work))
}

/** A statement within limits, which works on a seat. Rows are computed as they are fetched, so time counts until the last
  * is.
  */
class ReadersStatement(
    session: SparkSession,
    parent: HiveSession,
    text: String,
    overlay: JMap[String, String],
    async: Boolean,
    timeout: Long,
    user: String,
    running: AtomicInteger
) extends SparkExecuteStatementOperation(session, parent, text, overlay, async, timeout) {
  import ReadersStatement._

  private val counted = new AtomicBoolean
  private val place = new Place
  private var starting = false
  private val leaving = new Object

  /** The thread that works on the statement; changed under `leaving`. */
  @volatile private var worker: Option[Thread] = None

  /** Why the statement was ended, if it was. */
  @volatile private var ended: Option[Limit] = None
  private var clock: ScheduledFuture[_] = _
  private var rows, bytes = 0L

  override def run(): Unit = {
    starting = true
    try super.run()
    // a thread that was stopped just as it left the statement
    catch { case _: ThreadDeath if ended.nonEmpty => throw refusal(ended.get) }
  }

  override def runInternal(): Unit = {
    if (running.incrementAndGet() > Limit.statements.most) {
      running.decrementAndGet()
      throw Limit.statements.passed(user, "close results that are not read to their end")
    }
    counted.set(true)
    atWork.add(this)
    if (Heap.isFull) throw refused(refusal(Limit.heap))
    clock = timer.schedule((() => end(Limit.seconds)): Runnable, Limit.seconds.most, TimeUnit.SECONDS)
    if (async) super.runInternal() else seated(super.runInternal())
  }

  // what runs in the background, and what is fetched; not the start, for a client that waits there has no handle by
  // which to cancel
  override def withLocalProperties[A](work: => A): A =
    if (!starting) seated(super.withLocalProperties(work))
    else {
      starting = false
      super.withLocalProperties(work)
    }

  private def seated[A](work: => A): A =
    if (!sitDown()) throw refusal(Limit.seconds)
    else {
      val outer = worker
      try {
        ended.foreach(limit => throw refusal(limit))
        leaving.synchronized { worker = Some(Thread.currentThread) }
        Deadline.within(() => ended.map(refusal))(work)
      } finally {
        leaving.synchronized { worker = outer }
        place.idle()
      }
    }

  private def sitDown(): Boolean =
    try place.enter(Limit.seconds.most * 1000)
    catch {
      case _: InterruptedException =>
        throw ended.map(refusal).getOrElse(
          new HiveSQLException("the statement was cancelled as it waited for its turn")
        )
    }

  override def getNextRowSet(order: FetchOrientation, most: Long): TRowSet = {
    ended.foreach(limit => throw refusal(limit))
    val set =
      try super.getNextRowSet(order, math.min(most, FETCH))
      catch { case _: Throwable if ended.nonEmpty => throw refusal(ended.get) }
    val fetched = size(set)
    rows += fetched
    bytes += new TSerializer(new TBinaryProtocol.Factory()).serialize(set).length
    if (fetched == 0) leave()
    if (rows > Limit.rows.most) throw refused(Limit.rows.passed(user, "aggregate, filter or add a LIMIT"))
    if (bytes > Limit.bytes.most) throw refused(Limit.bytes.passed(user, "select fewer columns or rows"))
    set
  }

  override def close(): Unit =
    try super.close()
    finally {
      // what a client leaves that is gone computes on, too
      if (counted.get) stopAfter(GRACE_S)
      leave()
    }

  private def stopAfter(seconds: Long): Unit = Stopping.after(seconds, session.sparkContext, statementId, onWorker)

  private def onWorker(work: Thread => Unit): Boolean = leaving.synchronized {
    worker.foreach(work)
    worker.nonEmpty
  }

  /** End the statement for the heap's sake: whose rows fill it cannot be told. */
  def endForHeap(): Unit = end(Limit.heap)

  private def end(limit: Limit): Unit = synchronized {
    if (ended.isEmpty) {
      ended = Some(limit)
      val state = getStatus.getState
      // one that waits for its seat in the client's call has not begun, and ends there
      if (state != OperationState.INITIALIZED && !state.isTerminal) {
        setOperationException(refusal(limit))
        setState(OperationState.ERROR)
      }
      cleanup()
      // without room each row takes a collection of the heap, and Spark looks only between many rows whether to go on
      stopAfter(if (limit == Limit.heap) 0 else GRACE_S)
      leave()
    }
  }

  private def refusal(limit: Limit): HiveSQLException =
    limit.passed(user, if (limit == Limit.heap) "ask for less, or later" else "ask for less")

  private def refused(refusal: HiveSQLException): HiveSQLException = {
    cleanup()
    leave()
    refusal
  }

  private def leave(): Unit = {
    place.leave()
    if (counted.compareAndSet(true, false)) {
      running.decrementAndGet()
      atWork.remove(this)
      if (clock != null) clock.cancel(false)
    }
  }
}

object ReadersStatement {

  /** Rows that one answer holds at most, whatever the client asks for. */
  private val FETCH = 10000L

  /** Seconds in which an ended statement's threads may see themselves that it has. */
  private val GRACE_S = 5L

  /** Statements whose time runs. */
  val atWork: JSet[ReadersStatement] = ConcurrentHashMap.newKeySet[ReadersStatement]

  private val timer = ThreadUtils.newDaemonSingleThreadScheduledExecutor("readers-limits")

  private def size(set: TRowSet): Int =
    if (set.getColumnsSize == 0) set.getRowsSize
    else set.getColumns.get(0).getFieldValue match {
      case column: TBoolColumn => column.getValuesSize
      case column: TByteColumn => column.getValuesSize
      case column: TI16Column => column.getValuesSize
      case column: TI32Column => column.getValuesSize
      case column: TI64Column => column.getValuesSize
      case column: TDoubleColumn => column.getValuesSize
      case column: TStringColumn => column.getValuesSize
      case column: TBinaryColumn => column.getValuesSize
    }
}
