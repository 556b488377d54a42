package org.apache.spark.sql.delta.tidemark

import org.apache.spark.sql.{Row, SaveMode, SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OverwriteByExpression}
import org.apache.spark.sql.classic
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.delta.{DeltaLog, DeltaOperations, DeltaOptions, Snapshot}
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.spark.sql.delta.commands.WriteIntoDelta
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.command.{ExecutedCommandExec, LeafRunnableCommand}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.DataType

/** The extension: all rows of a small table are replaced without two queries about its files.
  *
  * Delta asks Spark for the files that go, and for the table's domains of metadata. For a mart of a small day these two
  * take more than half of the statement's time. [[Listings]] has the files of a small table, and a table of the
  * protocol's first versions has no domains.
  */
class SmallOverwrites extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectPlannerStrategy(OverwritesOfSmallTables(_))
}

case class OverwritesOfSmallTables(session: SparkSession) extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case OverwriteByExpression(relation: DataSourceV2Relation, TrueLiteral, _, options, _, _, Some(_), Some(query))
        if options.isEmpty =>
      relation.table match {
        case table: DeltaTableV2 if table.timeTravelOpt.isEmpty && SmallOverwrites.fits(table.initialSnapshot, query) =>
          ExecutedCommandExec(OverwriteSmallTable(relation, table, query)) :: Nil
        case _ => Nil
      }
    case _ => Nil
  }
}

/** Replaces all rows of a table in one commit. If it has many files, or has changed meanwhile, Delta does it. */
case class OverwriteSmallTable(relation: DataSourceV2Relation, table: DeltaTableV2, query: LogicalPlan)
    extends LeafRunnableCommand {
  override def run(session: SparkSession): Seq[Row] = {
    val spark = session.asInstanceOf[classic.SparkSession]
    val (log, of) = (table.deltaLog, table.catalogTable)
    val options = new DeltaOptions(Map.empty[String, String], spark.sessionState.conf)
    val most = SmallScans.mostFiles(spark.sessionState.conf)
    val rows = Dataset.ofRows(spark, query)
    val isDone = log.withNewTransaction(of) { transaction =>
      val snapshot = transaction.snapshot
      val replaced = if (SmallOverwrites.fits(snapshot, query)) Listings.files(snapshot, most) else None
      replaced.foreach { files =>
        DeltaLog.assertRemovable(snapshot)
        transaction.readWholeTable()
        val added = transaction.writeFiles(rows, Some(options))
        transaction.commit(
          added ++ files.map(_.remove),
          DeltaOperations.Write(SaveMode.Overwrite, Some(Nil), userMetadata = options.userMetadata)
        )
      }
      replaced.nonEmpty
    }
    if (!isDone) WriteIntoDelta(log, SaveMode.Overwrite, options, Nil, Map.empty, rows, of).run(session)
    spark.sharedState.cacheManager.recacheByPlan(spark, relation)
    Nil
  }
}

object SmallOverwrites {

  /** True if a table has no partitions and only what Delta's first protocol has, and a query its columns and types. */
  def fits(snapshot: Snapshot, query: LogicalPlan): Boolean =
    snapshot.protocol.minReaderVersion == 1 && snapshot.protocol.minWriterVersion <= 2 &&
      snapshot.metadata.partitionColumns.isEmpty &&
      DataType.equalsIgnoreNullability(query.schema, snapshot.schema)
}
