"""ffmpeg: H.264 is encoded by NVENC, decoded by NVDEC, and the pictures compared with a decoder in software."""

from checks import command, fact, folder, output, skip, verdict


def main():
    ffmpeg = command("ffmpeg")
    fact("version", output(ffmpeg, "-version").split()[2])
    if "h264_nvenc" not in output(ffmpeg, "-hide_banner", "-encoders"):
        skip("this ffmpeg was built without NVENC")
    if "cuda" not in output(ffmpeg, "-hide_banner", "-hwaccels").split():
        skip("this ffmpeg was built without NVDEC")
    made, place = folder()
    quiet = (ffmpeg, "-hide_banner", "-nostdin", "-loglevel", "error", "-y")
    film, as_sum = place / "film.mp4", ("-f", "md5", "-")
    output(*quiet, "-f", "lavfi", "-i", "testsrc2=duration=2:size=640x360:rate=30", "-pix_fmt", "yuv420p",
           "-c:v", "h264_nvenc", film)
    by_gpu = output(*quiet, "-hwaccel", "cuda", "-hwaccel_output_format", "cuda", "-i", film,
                    "-vf", "hwdownload,format=nv12,format=yuv420p", *as_sum)
    by_software = output(*quiet, "-i", film, "-pix_fmt", "yuv420p", *as_sum)
    verdict("computed", by_gpu == by_software)
    made.cleanup()


main()
