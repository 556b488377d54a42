package org.apache.spark.sql.hive.thriftserver.tidemark

import java.net.Socket
import java.time.Instant
import java.util.LinkedHashSet
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import org.apache.hive.service.cli.CLIService
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService
import org.apache.spark.sql.hive.thriftserver.ReflectionUtils
import org.apache.thrift.transport.{TServerTransport, TSocket, TTransport, TTransportFactory}

/** The Thrift port. Each connection has a thread of the server for itself, and there are only so many: those without a
  * session must not take them all, or nobody needed a password to lock out everybody.
  */
class Port(service: CLIService) extends ThriftBinaryCLIService(service) {
  override def initializeServer(): Unit = {
    super.initializeServer()
    val sockets = ReflectionUtils.getSuperField[TServerTransport](server, "serverTransport_")
    val greeting = ReflectionUtils.getSuperField[TTransportFactory](server, "inputTransportFactory_")
    ReflectionUtils.setSuperField(server, "serverTransport_", new Connections(sockets))
    ReflectionUtils.setSuperField(server, "inputTransportFactory_", new Greeting(greeting))
  }
}

/** Accepts connections. Of those without a session the oldest goes when there are too many, or when it says nothing. */
private final class Connections(sockets: TServerTransport) extends TServerTransport {
  private val without = new LinkedHashSet[Connection]

  override def accept(): TTransport = {
    val connection = new Connection(sockets.accept().asInstanceOf[TSocket].getSocket, this)
    expect(connection)
    connection
  }

  /** Expect a session of a connection. */
  def expect(connection: Connection): Unit = {
    connection.setSocketTimeout(Connections.SILENCE_MS)
    val oldest = synchronized {
      without.add(connection)
      if (without.size > Connections.MOST) Some(without.iterator.next()) else None
    }
    oldest.foreach { connection =>
      connection.close()
      Notices.add(
        s"a connection from ${connection.address} was closed: it and ${Connections.MOST} others had no session"
      )
    }
  }

  /** No longer expect a session: there is one, or the connection has ended. */
  def forget(connection: Connection): Unit = synchronized(without.remove(connection))

  override def listen(): Unit = sockets.listen()

  override def interrupt(): Unit = sockets.interrupt()

  override def close(): Unit = sockets.close()
}

private object Connections {

  /** Connections without a session at a time. A client needs a moment to log in. */
  val MOST = 100

  /** How long one may say nothing. */
  val SILENCE_MS = 20000
}

/** A client's connection; it may hold several sessions. */
private final class Connection(socket: Socket, connections: Connections) extends TSocket(socket) {
  private var sessions = 0

  val address: String = socket.getInetAddress.getHostAddress

  def opens(): Unit = synchronized {
    sessions += 1
    connections.forget(this)
    setSocketTimeout(0)
  }

  def closes(): Unit = synchronized {
    sessions -= 1
    if (sessions == 0 && isOpen) connections.expect(this)
  }

  override def close(): Unit = {
    connections.forget(this)
    super.close()
  }
}

private object Connection {
  private val ofThread = new ThreadLocal[Connection]

  /** The connection that this thread serves. */
  def current: Connection = ofThread.get

  def serve(connection: Connection): Unit = ofThread.set(connection)
}

/** Greets a client, in the thread that will serve it. */
private final class Greeting(inner: TTransportFactory) extends TTransportFactory {
  override def getTransport(base: TTransport): TTransport = {
    Connection.serve(base.asInstanceOf[Connection])
    inner.getTransport(base)
  }
}

/** What the server's log says about connections: a line a second at most, for anybody may open as many as they like. */
object Notices {
  private var unsaid = 0L
  private var last = System.nanoTime - TimeUnit.SECONDS.toNanos(1)

  def add(notice: String): Unit = synchronized {
    if (System.nanoTime - last < TimeUnit.SECONDS.toNanos(1)) unsaid += 1
    else {
      System.err.println(s"${Instant.now} $notice" + (if (unsaid > 0) s" ($unsaid more since the last line)" else ""))
      last = System.nanoTime
      unsaid = 0
    }
  }
}

/** Counts the sessions of readers: of one user, and of all. */
private final class ReadersSessions {
  private val all = new AtomicInteger
  private val ofUser = new ConcurrentHashMap[String, AtomicInteger]

  def opens(user: String): Unit = {
    val count = ofUser.computeIfAbsent(user, _ => new AtomicInteger)
    val passed =
      if (count.incrementAndGet() > Limit.sessions.most) Some(Limit.sessions)
      else if (all.get >= Limit.sessionsOfAll.most) Some(Limit.sessionsOfAll)
      else None
    all.incrementAndGet()
    passed.foreach { limit =>
      closes(user)
      throw limit.passed(user, "close sessions that are not used", "session was not opened")
    }
  }

  def closes(user: String): Unit = {
    all.decrementAndGet()
    ofUser.get(user).decrementAndGet()
  }
}
