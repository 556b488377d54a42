package org.apache.spark.sql.hive.thriftserver.tidemark

import java.io.{ByteArrayOutputStream, FileNotFoundException, IOException}
import java.lang.{Boolean => JBoolean}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.{Arrays, Iterator => JIterator}

import io.delta.storage.HadoopFileSystemLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, Path}
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE

/** Delta's log on S3: a version is put where there is none, or not at all.
  *
  * Delta's own store looks whether the version is there and then puts it, under a lock of its JVM: what another process
  * has put in between is overwritten. S3 itself refuses a put under a condition (`If-None-Match: *`), whoever asks. A
  * client that cannot ask so fails here, it does not put without the condition.
  */
class ConditionalLog(conf: Configuration) extends HadoopFileSystemLogStore(conf) {
  override def write(path: Path, actions: JIterator[String], overwrite: JBoolean, hadoopConf: Configuration): Unit = {
    // whole before the first byte goes out: a stream that is closed early would put what it has
    val buffer = new ByteArrayOutputStream
    while (actions.hasNext) buffer.write((actions.next() + "\n").getBytes(UTF_8))
    val content = buffer.toByteArray
    val system = path.getFileSystem(hadoopConf)
    def put(stream: FSDataOutputStream): Unit =
      try stream.write(content)
      finally stream.close()

    if (overwrite) put(system.create(path, true))
    else
      try put(system.createFile(path).recursive().must(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true).build())
      catch {
        // a put whose answer was lost is tried again by the client, and then refused for what it put itself: a commit
        // has an identity of its own, so equal bytes are this one
        case refusal: IOException =>
          stored(path, hadoopConf) match {
            case Some(version) if Arrays.equals(version, content) =>
            case Some(_) =>
              val other = new FileAlreadyExistsException(path.toString)
              other.initCause(refusal)
              throw other
            case None => throw refusal
          }
      }
  }

  /** An object is there whole or not at all. */
  override def isPartialWriteVisible(path: Path, hadoopConf: Configuration): JBoolean = false

  private def stored(path: Path, hadoopConf: Configuration): Option[Array[Byte]] =
    try {
      val stream = path.getFileSystem(hadoopConf).open(path)
      try Some(stream.readAllBytes())
      finally stream.close()
    } catch { case _: FileNotFoundException => None }
}
