package org.apache.spark.sql.delta.tidemark

import java.io.{FileNotFoundException, IOException}
import java.util.{LinkedHashMap, Map => JMap, WeakHashMap}

import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.sql.delta.{DeltaLog, Snapshot}
import org.apache.spark.sql.delta.actions.{Action, AddFile, FileAction, InMemoryLogReplay}
import org.apache.spark.sql.delta.util.FileNames

/** The files of small tables, listed once a version.
  *
  * The first listing of a table is a query of Spark's. Later ones follow the table: what its commits since then have added
  * and removed, a few lines of text each. A run changes each table that readers ask, and a query takes many times as long.
  */
object Listings {

  /** Commits that a listing follows at most; a query reads a log of many commits in parallel. */
  private val MOST_COMMITS = 32

  /** Bytes of those commits: more than some hundred files have. */
  private val MOST_BYTES = 1L << 20

  /** Tables whose last listing is kept. */
  private val MOST_TABLES = 256

  /** By snapshot, which Delta lets go of when a newer one stands. */
  private val listings = new WeakHashMap[Snapshot, Listing]

  private val newest = new LinkedHashMap[Path, Basis](16, 0.75f, true) {
    override def removeEldestEntry(eldest: JMap.Entry[Path, Basis]): Boolean = size > MOST_TABLES
  }

  /** The files of a snapshot without their statistics, if they are no more than `most`. */
  def files(snapshot: Snapshot, most: Int): Option[Array[AddFile]] =
    if (most <= 0 || numFiles(snapshot).exists(_ > most)) None
    else {
      val listing = listings.synchronized(listings.computeIfAbsent(snapshot, _ => new Listing))
      listing.of(snapshot, most)
    }

  /** As the table's writer noted it. Where none did, the snapshot would count them by a query. */
  private def numFiles(snapshot: Snapshot): Option[Long] = snapshot.checksumOpt.map(_.numFiles)

  private class Listing {
    private var files: Array[AddFile] = _
    private var exceeded = 0

    /** The files, if they are no more than `most`; one of many who ask at the same time reads them. */
    def of(snapshot: Snapshot, most: Int): Option[Array[AddFile]] = synchronized {
      if (files == null && most > exceeded) {
        val commits = new Commits(snapshot.deltaLog)
        val read = followed(snapshot, commits, most).getOrElse(
          snapshot.allFiles.limit(most + 1).collect().map(_.copy(stats = null))
        )
        if (read.length <= most) {
          files = read
          keep(snapshot, commits, files)
        } else exceeded = most
      }
      Option(files).filter(_.length <= most)
    }
  }

  /** The commits of a table's log, read with one copy of Hadoop's configuration: copies are dear. */
  private final class Commits(log: DeltaLog) {
    private val conf = log.newDeltaHadoopConf()
    private val files = log.logPath.getFileSystem(conf)

    def file(version: Long): FileStatus = files.getFileStatus(FileNames.unsafeDeltaFile(log.logPath, version))

    def actions(file: FileStatus): Seq[Action] = log.store.read(file, conf).map(Action.fromJson)
  }

  /** What a later listing follows: a table's files at a version, and the file of that version's commit, by which it is
    * known that the log is still the one that was read.
    */
  private final case class Basis(version: Long, modified: Long, length: Long, files: Array[AddFile]) {
    def isStillIn(commits: Commits): Boolean =
      try {
        val now = commits.file(version)
        now.getModificationTime == modified && now.getLen == length
      } catch { case _: FileNotFoundException => false }
  }

  private def basisOf(log: DeltaLog): Option[Basis] = Option(newest.synchronized(newest.get(log.dataPath)))

  private def keep(snapshot: Snapshot, commits: Commits, files: Array[AddFile]): Unit = {
    val log = snapshot.deltaLog
    // a path of another table's file (a shallow clone's) has forms that only Delta makes one
    if (files.forall(isOwn))
      try {
        // who reads an older version leaves the newer one to be followed
        if (!basisOf(log).exists(basis => basis.version > snapshot.version && basis.isStillIn(commits))) {
          val last = commits.file(snapshot.version)
          val basis = Basis(snapshot.version, last.getModificationTime, last.getLen, files)
          newest.synchronized(newest.put(log.dataPath, basis))
        }
      } catch { case _: IOException => }
  }

  /** The files by what was committed since the table's last listing; none where that does not say it. */
  private def followed(snapshot: Snapshot, commits: Commits, most: Int): Option[Array[AddFile]] =
    try for {
      basis <- basisOf(snapshot.deltaLog)
      versions = basis.version + 1 to snapshot.version
      if basis.version <= snapshot.version && versions.size <= MOST_COMMITS && basis.isStillIn(commits)
      since = versions.map(version => version -> commits.file(version))
      if since.map(_._2.getLen).sum <= MOST_BYTES
      files <- replayed(basis, since.map { case (version, file) => version -> commits.actions(file) })
      if files.length <= most && numFiles(snapshot).forall(_ == files.length)
    } yield files
    catch {
      // a commit that was cleaned up, or is elsewhere: Delta reads the log as it is, or says what is wrong with it
      case _: IOException => None
    }

  private def replayed(basis: Basis, since: Seq[(Long, Seq[Action])]): Option[Array[AddFile]] = {
    val areOwn = since.forall(_._2.forall {
      case action: FileAction => isOwn(action)
      case _ => true
    })
    Option.when(areOwn) {
      val replay = new InMemoryLogReplay(None, None)
      replay.append(basis.version, basis.files.iterator)
      for ((version, actions) <- since) replay.append(version, actions.iterator)
      replay.allFiles.map(_.copy(stats = null)).toArray
    }
  }

  private def isOwn(file: FileAction): Boolean = !file.pathAsUri.isAbsolute && !file.path.startsWith("/")
}
