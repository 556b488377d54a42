package org.apache.spark.sql.delta.tidemark

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.delta.{DeltaColumnMapping, DeltaTableUtils, Snapshot}
import org.apache.spark.sql.delta.actions.AddFile
import org.apache.spark.sql.delta.stats.{
  DataSize,
  DeltaDataSkippingType,
  DeltaScan,
  DeltaScanGenerator,
  PrepareDeltaScan
}
import org.apache.spark.sql.execution.datasources.LogicalRelation
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/** The extension: scans of tables of few files are prepared in memory, those of others by Delta.
  *
  * It stands before Delta's among the extensions: its rule runs first, and what it has prepared Delta leaves alone.
  */
class SmallScans extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectPreCBORule(session => new PrepareSmallScans(session))
}

/** Delta asks Spark for the files of each scan: a query of its own with stages and tasks, which takes half of the time of
  * a question over small tables. The files of a small table are few objects: they are listed once a version, see
  * [[Listings]], and each scan takes those whose partition its filters allow.
  *
  * Filters on other columns choose no files here: reading a few files more costs less than choosing. A scan that is
  * left with many files is Delta's to prepare, which skips by statistics.
  */
class PrepareSmallScans(session: SparkSession) extends PrepareDeltaScan(session) {
  override protected def filesForScan(
      generator: DeltaScanGenerator,
      limit: Option[Int],
      filters: Seq[Expression],
      delta: LogicalRelation
  ): DeltaScan = {
    // within a transaction on the table the generator is the transaction, which notes what was read
    val prepared = generator match {
      case snapshot: Snapshot if limit.isEmpty && snapshot.schema.nonEmpty => prepare(snapshot, filters)
      case _ => None
    }
    prepared.getOrElse(super.filesForScan(generator, limit, filters, delta))
  }

  private def prepare(snapshot: Snapshot, filters: Seq[Expression]): Option[DeltaScan] = {
    val begun = System.currentTimeMillis
    // as Delta parts them
    val (unfit, fit) = filters.partition(filter =>
      DeltaTableUtils.containsSubquery(filter) || !filter.deterministic || filter.exists {
        case MetadataAttribute(_) => true
        case _ => false
      }
    )
    val (ofPartitions, ofData) = fit.partition(
      DeltaTableUtils.isPredicatePartitionColumnsOnly(_, snapshot.metadata.partitionColumns, spark)
    )
    for {
      allowed <- allowing(snapshot.metadata.partitionSchema, ofPartitions)
      files <- Listings.files(snapshot, SmallScans.mostFiles(spark.sessionState.conf))
      chosen = files.filter(allowed).toSeq
      if chosen.size <= SmallScans.FEW || ofData.forall(_.isInstanceOf[IsNotNull])
    } yield {
      val size = DataSize(Some(chosen.map(_.size).sum), None, Some(chosen.size.toLong))
      DeltaScan(
        snapshot.version,
        chosen,
        DataSize(Some(files.map(_.size).sum), None, Some(files.length.toLong)),
        size,
        size
      )(
        scannedSnapshot = snapshot,
        partitionFilters = ExpressionSet(ofPartitions),
        dataFilters = ExpressionSet(Nil),
        partitionLikeDataFilters = ExpressionSet(Nil),
        rewrittenPartitionLikeDataFilters = Set.empty,
        unusedFilters = ExpressionSet(ofData ++ unfit),
        scanDurationMs = System.currentTimeMillis - begun,
        dataSkippingType =
          if (filters.isEmpty) DeltaDataSkippingType.noSkippingV1 else DeltaDataSkippingType.partitionFilteringOnlyV1
      )
    }
  }

  /** Whether a file's partition meets the filters; none where that is for Spark to evaluate. */
  private def allowing(partitions: StructType, filters: Seq[Expression]): Option[AddFile => Boolean] =
    if (filters.isEmpty) Some(_ => true)
    else {
      val zone = Option(spark.sessionState.conf.sessionLocalTimeZone)
      val resolver = spark.sessionState.conf.resolver
      val bound = filters.reduce(And).transform { case attribute: AttributeReference =>
        val place = partitions.indexWhere(field => resolver(field.name, attribute.name))
        BoundReference(place, partitions(place).dataType, nullable = true)
      }
      val isPlain = !bound.exists {
        case _: Unevaluable => true
        case reference: BoundReference => !SmallScans.isPlain(reference.dataType)
        case _ => false
      }
      Option.when(isPlain) {
        val predicate = Predicate.createInterpreted(bound)
        predicate.initialize(0)
        file => {
          val values = partitions.map { field =>
            val text = Literal(file.partitionValues.getOrElse(DeltaColumnMapping.getPhysicalName(field), null))
            Cast(text, field.dataType, zone, EvalMode.LEGACY).eval()
          }
          predicate.eval(new GenericInternalRow(values.toArray))
        }
      }
    }
}

object SmallScans {

  /** Files that a table may have whose list is kept in memory; 0: of none. */
  private val MOST_FILES = "spark.tidemark.scan.files"

  /** The greatest number of files of a small table, by the session's setting. */
  def mostFiles(conf: SQLConf): Int = conf.getConfString(MOST_FILES, "256").toInt

  /** Files that are read whatever the filters on columns of rows say of them. */
  val FEW = 8

  /** Types whose values Delta writes into paths as Spark casts them back, whatever the time zone is. */
  def isPlain(kind: DataType): Boolean = kind match {
    case StringType | BooleanType | DateType | _: IntegralType => true
    case _ => false
  }
}
