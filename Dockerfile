# The emulator in a container: docker build -t sbnotebook-emulator .
FROM python:3.13-slim
COPY . /source
RUN pip install --no-cache-dir /source && rm -rf /source \
    && useradd --create-home emulator && install -d -o emulator /data
USER emulator
VOLUME /data
# AMQP and HTTP; and both with TLS, where the arguments say --tls.
EXPOSE 5672 5671
ENTRYPOINT ["sbnotebook", "emulator", "--host", "0.0.0.0", "--data-dir", "/data"]
