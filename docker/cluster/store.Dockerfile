# The object store of the compose deployment: versitygw, which keeps objects as files, with a folder that its user owns.
FROM versity/versitygw:v1.8.0
RUN adduser -D -u 10002 store && install -d -o store -m 0700 /data
USER 10002
VOLUME /data
EXPOSE 7070
