package org.apache.spark.sql.hive.thriftserver.tidemark

import java.nio.file.{Files, Path}
import java.util.{Map => JMap}
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.hadoop.fs.{FileStatus, FileSystem, Path => HadoopPath}
import org.apache.hadoop.hive.conf.HiveConf
import org.apache.hadoop.hive.conf.HiveConf.ConfVars
import org.apache.hadoop.hive.ql.session.SessionState
import org.apache.hive.service.Service
import org.apache.hive.service.auth.TSetIpAddressProcessor
import org.apache.hive.service.cli.{CLIService, HiveSQLException, SessionHandle}
import org.apache.hive.service.cli.session.SessionManager
import org.apache.hive.service.cli.thrift.ThriftCLIService
import org.apache.hive.service.rpc.thrift.TProtocolVersion
import org.apache.hive.service.server.HiveServer2
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.tidemark.LostTasks
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.catalog.CatalogTableType
import org.apache.spark.sql.connect.tidemark.ConnectSocket
import org.apache.spark.sql.hive.HiveUtils
import org.apache.spark.sql.hive.thriftserver.{HiveThriftServer2, ReflectionUtils, SparkSQLEnv}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.{ShutdownHookManager, ThreadUtils}

/** The lake server: Spark's Thrift server, whose sessions belong to logins and whose statements are guarded. */
object LakeServer {

  /** Starts the server, or ends the process: without its port, what else runs in it serves nobody. */
  def main(arguments: Array[String]): Unit =
    try start()
    catch {
      case error: Throwable =>
        error.printStackTrace()
        sys.exit(1)
    }

  private def start(): Unit = {
    // Hive looks for it in a configuration of its own, which knows system properties but not Spark's
    System.setProperty(ConfVars.HIVE_SERVER2_CUSTOM_AUTHENTICATION_CLASS.varname, classOf[LoginProvider].getName)
    SparkSQLEnv.init()
    ShutdownHookManager.addShutdownHook { () => SparkSQLEnv.stop() }
    val root = SparkSQLEnv.sparkSession
    Scratch.start(root)
    LostTasks.watch(root.sparkContext)
    Executors.watch(root.sparkContext, Path.of(Logins.setting("executors.file")))
    ConnectSocket.start(root.sparkContext.conf)
    val conf = HiveUtils.newClientForExecution(root.sparkContext.conf, root.sessionState.newHadoopConf()).conf
    val server = new HiveThriftServer2(root)
    server.init(conf)
    guard(server, root, conf)
    // Spark makes the listener of statements itself where it starts the server itself
    ReflectionUtils.invoke(
      HiveThriftServer2.getClass,
      HiveThriftServer2,
      "createListenerAndUI",
      Seq((classOf[HiveThriftServer2], server), (classOf[SparkContext], root.sparkContext)): _*
    )
    server.start()
  }

  /** Puts the guarded sessions in the place of Spark's, before the port opens. */
  private def guard(server: HiveThriftServer2, root: SparkSession, conf: HiveConf): Unit = {
    val service = ReflectionUtils.getSuperField[CLIService](server, "cliService")
    val sessions = new Sessions(server, root)
    sessions.init(conf)
    val parts = ReflectionUtils.getAncestorField[java.util.List[Service]](service, 2, "serviceList")
    parts.replaceAll(part => if (part.isInstanceOf[SessionManager]) sessions else part)
    ReflectionUtils.setSuperField(service, "sessionManager", sessions)
    val port = new Port(service)
    port.init(conf)
    val services = ReflectionUtils.getAncestorField[java.util.List[Service]](server, 2, "serviceList")
    services.replaceAll(part => if (part.isInstanceOf[ThriftCLIService]) port else part)
    ReflectionUtils.setSuperField(server, "thriftCLIService", port)
  }
}

/** Opens a session for each authenticated connection; what the client asks for beside it is settings that it may have. */
class Sessions(server: HiveServer2, root: SparkSession) extends SessionManager(server) {
  private val operations = new Statements
  private val readers = new ReadersSessions
  private val ends = new ConcurrentHashMap[SessionHandle, () => Unit]

  override def init(conf: HiveConf): Unit = {
    ReflectionUtils.setSuperField(this, "operationManager", operations)
    super.init(conf)
  }

  override def openSession(
      protocol: TProtocolVersion,
      claimed: String,
      password: String,
      address: String,
      asked: JMap[String, String],
      impersonate: Boolean,
      token: String
  ): SessionHandle = {
    val principal = Logins.principal(Logins.received(TSetIpAddressProcessor.getUserName))
    val end = begin(principal)
    try {
      // writers do not wait: dbt makes the marts anew as one
      if (!principal.isWriter) Names.await()
      val (database, settings) = wishes(principal, Option(asked).map(_.asScala.toMap).getOrElse(Map.empty))
      val handle = super.openSession(protocol, principal.user, "", address, null, false, token)
      ends.put(handle, end)
      open(handle, principal, address, database, settings)
      handle
    } catch {
      case NonFatal(refusal) =>
        end()
        throw refusal
    }
  }

  /** Counts a session, for its connection and among those of readers; what to do when it ends. */
  private def begin(principal: Principal): () => Unit = {
    val connection = Connection.current
    connection.opens()
    try if (!principal.isWriter) readers.opens(principal.user)
    catch {
      case NonFatal(refusal) =>
        connection.closes()
        throw refusal
    }
    val isOpen = new AtomicBoolean(true)
    () =>
      if (isOpen.compareAndSet(true, false)) {
        connection.closes()
        if (!principal.isWriter) readers.closes(principal.user)
      }
  }

  private def open(
      handle: SessionHandle,
      principal: Principal,
      address: String,
      database: Option[String],
      settings: Map[String, String]
  ): Unit =
    try {
      val hives = getSession(handle)
      ReflectionUtils.setAncestorField(hives, 0, "sessionState", new HiveState(hives.getHiveConf, principal.user))
      HiveThriftServer2.eventManager.onSessionCreated(address, handle.getSessionId.toString, principal.user)
      val session = Guard.newSession(root, principal)
      session.sessionState.conf.setConf(SQLConf.DATETIME_JAVA8API_ENABLED, true)
      (own(principal) ++ settings).foreach { case (key, value) => session.conf.set(key, value) }
      operations.sessionToContexts.put(handle, session)
      operations.principals.put(handle, principal)
      database.foreach(name => session.sql(s"USE `${name.replace("`", "``")}`"))
    } catch {
      case NonFatal(refusal) =>
        closeSession(handle)
        throw new HiveSQLException(refusal.getMessage, refusal)
    }

  override def closeSession(handle: SessionHandle): Unit = {
    HiveThriftServer2.eventManager.onSessionClosed(handle.getSessionId.toString)
    try super.closeSession(handle)
    finally {
      operations.sessionToContexts.remove(handle)
      operations.principals.remove(handle)
      Option(ends.remove(handle)).foreach(end => end())
    }
  }

  /** What holds for the principal's sessions, whatever the client asks for. */
  private def own(principal: Principal): Map[String, String] =
    Map(
      "spark.sql.runSQLOnFiles" -> "false",
      "spark.sql.sources.default" -> "delta",
      "spark.sql.legacy.createHiveTableByDefault" -> "false"
    ) ++
      (if (principal.isWriter) Map.empty
       else Map(
         "spark.sql.thriftServer.incrementalCollect" -> "true",
         "spark.sql.thriftserver.scheduler.pool" -> "readers"
       ))

  /** The database and the settings of a connection's URL. Drivers send wishes of Hive, which mean nothing here. */
  private def wishes(principal: Principal, asked: Map[String, String]): (Option[String], Map[String, String]) = {
    val settings = asked.collect {
      case (key, value) if key != "use:database" => key.replaceFirst("^set:(hiveconf:|hivevar:)?", "") -> value
    }.filterNot { case (key, _) => key.startsWith("hive.") && key != "hive.server2.proxy.user" }
    settings.foreach { case (key, value) =>
      if (!Settings.mayBe(key, value, principal))
        throw new HiveSQLException(s"not_allowed: expected settings that a session may change, found $key = $value; " +
          "the session was not opened; leave it out of the connection's URL")
    }
    (asked.get("use:database").filter(_.nonEmpty), settings)
  }
}

/** What Hive keeps for a session, of which Spark uses nothing but that it is there.
  *
  * Hive would end it by closing the metastore's client of the thread, which is the one that all of Spark shares. It looks
  * at that client first; when another session has just closed it, Hive makes one anew, for which classes are missing
  * here: the connection broke off, and later sessions in the same case waited for ever.
  */
private class HiveState(conf: HiveConf, user: String) extends SessionState(conf, user) {
  override def close(): Unit = SessionState.detachSession()
}

/** The names of a catalog that was lost. The first work of the server makes them anew, and removes a file when it has. */
object Names {

  /** Wait while that file is there, at most as long as the first work may take. */
  def await(): Unit = {
    val lacking = Path.of(Logins.setting("names.lacking"))
    val end = System.nanoTime + TimeUnit.SECONDS.toNanos(Logins.setting("names.seconds").toLong)
    while (Files.exists(lacking) && System.nanoTime < end) Thread.sleep(100)
  }
}

/** Scratch databases: made with their first table; their tables are dropped when they are old, and so are folders in them
  * that are no table's, which a statement leaves that fails as it writes.
  */
object Scratch {
  @volatile private var root: SparkSession = _
  private val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("scratch")

  def start(session: SparkSession): Unit = {
    root = session
    clock.scheduleWithFixedDelay(() => expire(), 1, 60, TimeUnit.MINUTES)
  }

  def ensure(database: String): Unit =
    if (!root.catalog.databaseExists(database))
      root.newSession().sql(
        s"CREATE DATABASE IF NOT EXISTS `$database` COMMENT 'Tables of one user, dropped when old.'"
      )

  private def expire(): Unit =
    try
      drop(root.newSession(), System.currentTimeMillis - TimeUnit.DAYS.toMillis(Logins.setting("scratch.days").toLong))
    catch { case NonFatal(error) => System.err.println(s"scratch tables could not be dropped: $error") }

  /** Drops tables that were created before a time, in milliseconds since the epoch, and folders that no table has and of
    * which no file has changed since.
    */
  def drop(session: SparkSession, oldest: Long): Unit = {
    val catalog = session.sessionState.catalog
    for {
      database <- catalog.listDatabases("scratch_*")
      table <- catalog.listTables(database)
      metadata = catalog.getTableMetadata(table)
      if metadata.createTime < oldest
    }
      try session.sql(
          s"DROP ${if (metadata.tableType == CatalogTableType.VIEW) "VIEW" else "TABLE"} ${table.quotedString}"
        )
      catch { case NonFatal(error) => System.err.println(s"$table could not be dropped: $error") }
    removeFolders(session, oldest)
  }

  private def removeFolders(session: SparkSession, oldest: Long): Unit = {
    val catalog = session.sessionState.catalog
    val warehouse = new HadoopPath(session.sessionState.conf.warehousePath)
    val files = warehouse.getFileSystem(session.sessionState.newHadoopConf())
    val ofTables = for {
      database <- catalog.listDatabases("scratch_*")
      table <- catalog.listTables(database)
      location <- catalog.getTableMetadata(table).storage.locationUri
    } yield files.makeQualified(new HadoopPath(location))
    for {
      // of a database that the catalog has lost, too
      database <- Option(files.globStatus(new HadoopPath(warehouse, "scratch_*.db"))).toSeq.flatten
      if database.isDirectory
      folder <- files.listStatus(database.getPath)
      if !ofTables.contains(files.makeQualified(folder.getPath)) && newest(files, folder) < oldest
    } files.delete(folder.getPath, true)
  }

  /** When something in a folder has changed last; some file systems keep no such time of folders. */
  private def newest(files: FileSystem, folder: FileStatus): Long =
    Iterator.unfold(files.listFiles(folder.getPath, true))(left => Option.when(left.hasNext)(left.next() -> left))
      .map(_.getModificationTime).maxOption.getOrElse(folder.getModificationTime)
}
