package tidemark.catalog

import java.io.StringReader
import java.sql.{Connection, DriverManager}
import java.util.Properties

import scala.io.{Codec, Source}
import scala.jdk.CollectionConverters._
import scala.util.Using
import scala.xml.XML

import javax.jdo.JDOHelper
import javax.xml.parsers.SAXParserFactory
import org.apache.hadoop.hive.conf.HiveConf.ConfVars
import org.apache.hadoop.hive.metastore.MetaStoreSchemaInfo
import org.apache.hadoop.hive.metastore.model.MVersionTable
import org.datanucleus.api.jdo.JDOPersistenceManagerFactory
import org.datanucleus.store.schema.SchemaAwareStoreManager

/** Makes the tables of Hive's catalog that a database lacks, all before Hive first uses it.
  *
  * Hive itself makes each table when it first needs it, in a connection beside its transaction. PostgreSQL then waits for
  * ever: the new table refers to one that the transaction has written to. The tables are those of `package.jdo`, which is
  * in Hive's jar, and DataNucleus makes them, as it does for Hive.
  *
  * Standard input has the catalog's settings, a line `name=value` each; the argument is the limit in seconds for a
  * connection. Standard output gets a line: `made` or `complete`, and the version of the tables.
  */
object CatalogTables {
  def main(arguments: Array[String]): Unit = {
    val given =
      Source.fromInputStream(System.in)(Codec.UTF8).getLines().filter(_.contains("=")).map(_.split("=", 2)).map {
        case Array(name, value) => name -> value
      }.toMap
    DriverManager.setLoginTimeout(arguments(0).toInt)
    try println(complete(given))
    catch {
      case error: Throwable =>
        System.err.println(Iterator.iterate(error)(_.getCause).takeWhile(_ != null).toSeq.last)
        sys.exit(1)
    }
    // threads of DataNucleus would go on
    sys.exit(0)
  }

  private def complete(given: Map[String, String]): String = {
    val (classes, tables) = declared()
    val current = MetaStoreSchemaInfo.getHiveSchemaVersion
    val isComplete = Using.resource(connection(given)) { open =>
      val present = existing(open)
      val stored = if (present.contains("version")) storedVersion(open) else None
      stored.filter(_ != current).foreach(other =>
        throw new IllegalStateException(s"Hive's tables of version $other, where this Spark has those of $current")
      )
      stored.nonEmpty && tables.subsetOf(present)
    }
    if (!isComplete) make(given, classes, current)
    s"${if (isComplete) "complete" else "made"} $current"
  }

  private def connection(given: Map[String, String]): Connection = {
    given.get(ConfVars.METASTORE_CONNECTION_DRIVER.varname).foreach(Class.forName(_))
    val login = new Properties
    given.get(ConfVars.METASTORE_CONNECTION_USER_NAME.varname).foreach(login.setProperty("user", _))
    given.get(ConfVars.METASTOREPWD.varname).foreach(login.setProperty("password", _))
    DriverManager.getConnection(given(ConfVars.METASTORECONNECTURLKEY.varname), login)
  }

  /** The classes that Hive stores, and the names of their tables in small letters. */
  private def declared(): (Seq[String], Set[String]) = {
    val text = Using.resource(classOf[MVersionTable].getResourceAsStream("/package.jdo"))(stream =>
      Source.fromInputStream(stream)(Codec.UTF8).mkString
    )
    val parsers = SAXParserFactory.newInstance()
    // its document type is at an address
    parsers.setFeature("http://apache.org/xml/features/nonvalidating/load-external-dtd", false)
    val document = XML.withSAXParser(parsers.newSAXParser()).load(new StringReader(text))
    val classes = (document \ "package").flatMap(each => (each \ "class").map(c => s"${each \@ "name"}.${c \@ "name"}"))
    // classes that are columns of another one's table name a table, too
    val stored = (document \\ "_").filter(each => each \@ "embedded-only" != "true").map(_ \@ "table")
    (classes, stored.filter(_.nonEmpty).map(_.toLowerCase).toSet)
  }

  private def existing(open: Connection): Set[String] = {
    val names = open.getMetaData.getTables(open.getCatalog, open.getSchema, "%", Array("TABLE"))
    Iterator.continually(names).takeWhile(_.next()).map(_.getString("TABLE_NAME").toLowerCase).toSet
  }

  private def storedVersion(open: Connection): Option[String] = {
    val quote = open.getMetaData.getIdentifierQuoteString
    val rows = open.createStatement().executeQuery(s"SELECT ${quote}SCHEMA_VERSION$quote FROM ${quote}VERSION$quote")
    Option.when(rows.next())(rows.getString(1))
  }

  private def make(given: Map[String, String], classes: Seq[String], version: String): Unit = {
    // Hive's own settings of DataNucleus, so that Hive finds what it would have made
    val hives = ConfVars.values.map(v => v.varname -> v.getDefaultValue).filter(_._1.startsWith("datanucleus.")).toMap
    val ours = hives ++ given ++ Map(
      "javax.jdo.PersistenceManagerFactoryClass" -> classOf[JDOPersistenceManagerFactory].getName,
      "datanucleus.connectionPoolingType" -> "None",
      "datanucleus.schema.autoCreateAll" -> "true",
      "datanucleus.plugin.pluginRegistryBundleCheck" -> "NONE"
    )
    val factory = JDOHelper.getPersistenceManagerFactory(ours.asJava).asInstanceOf[JDOPersistenceManagerFactory]
    factory.getNucleusContext.getStoreManager.asInstanceOf[SchemaAwareStoreManager]
      .createSchemaForClasses(classes.toSet.asJava, new Properties)
    val manager = factory.getPersistenceManager
    try {
      val stored = manager.newQuery(classOf[MVersionTable]).execute().asInstanceOf[java.util.Collection[MVersionTable]]
      if (stored.isEmpty) manager.makePersistent(new MVersionTable(version, "made by Tidemark"))
    } finally {
      manager.close()
      factory.close()
    }
  }
}
