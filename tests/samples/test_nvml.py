from __future__ import annotations

import pytest

from gpusize.observe.metrics.nvml import LocalGpus, local_gpus_wanted
from gpusize.observe.metrics.reading import SourceFailed
from tests.samples.fake_nvml import Gpu, fake_nvml
from tests.samples.sources import Clock


def told(source: LocalGpus, uuid: str = "GPU-0") -> dict[str, float]:
    return {metric: value for (metric, labels), value in source.read().values.items() if uuid in labels}


def test_everything_that_a_gpu_tells():
    nvml = fake_nvml(Gpu(), Gpu("GPU-1", power_mw=100_000))
    source = LocalGpus(nvml=nvml, clock=Clock(3))
    source.open()
    assert told(source) == {
        "nvml_gpu_utilization": 0.4,
        "nvml_gpu_utilization_max": 0.4,
        "nvml_power_watts": 250,
        "nvml_energy_joules_total": 1000,
        "nvml_power_limit_watts": 400,
        "nvml_memory_used_bytes": 5 << 30,
        "nvml_memory_total_bytes": 80 << 30,
        "nvml_sm_clock_mhz": 1410,
        "nvml_memory_clock_mhz": 1593,
        "nvml_throttled": 0,
        "nvml_slowed_by_sw_power_cap": 0,
        "nvml_slowed_by_hw_slowdown": 0,
        "nvml_slowed_by_sw_thermal": 0,
        "nvml_slowed_by_hw_thermal": 0,
        "nvml_slowed_by_hw_power_brake": 0,
    }
    assert told(source, "GPU-1")["nvml_power_watts"] == 100
    assert source.read().t_ns == 3
    assert source.notes() == []
    source.close()
    source.close()
    assert nvml.calls == {"init": 1, "shutdown": 1}


def test_utilisation_is_the_mean_of_the_drivers_samples_since_the_last_reading():
    gpu = Gpu(samples=[(1, 90), (2, 90)], util=7)
    source = LocalGpus(nvml=fake_nvml(gpu))
    source.open()
    # The first time the samples reach back to before the run.
    assert told(source)["nvml_gpu_utilization"] == 0.07
    gpu.samples = [(1, 90), (2, 90), (3, 20), (4, 60), (5, 4_000_000)]
    found = told(source)
    assert found["nvml_gpu_utilization"] == pytest.approx(0.4)
    assert found["nvml_gpu_utilization_max"] == 0.6
    assert told(source)["nvml_gpu_utilization"] == 0.07


def test_a_split_gpu_lacks_some_and_says_so():
    source = LocalGpus(nvml=fake_nvml(Gpu(util=None, mig=1), Gpu("GPU-1", mig=None)))
    source.open()
    assert "nvml_gpu_utilization" not in told(source)
    assert told(source)["nvml_power_watts"] == 250
    assert source.notes() == [
        "local GPUs: 1 of 2 do not report their utilisation",
        "local GPUs: 1 of 2 are split (MIG); power, energy and memory are those of the whole GPU",
    ]


@pytest.mark.parametrize(
    "changed, lost",
    [
        ({"power_mw": 4_294_967_295}, "nvml_power_watts"),
        ({"util": 255}, "nvml_gpu_utilization"),
        ({"used": 90 << 30}, "nvml_memory_used_bytes"),
        ({"sm_mhz": 4_294_967_295}, "nvml_sm_clock_mhz"),
        ({"energy_mj": None}, "nvml_energy_joules_total"),
        ({"reasons": None}, "nvml_throttled"),
    ],
)
def test_what_cannot_be_is_left_out(changed: dict, lost: str):
    whole, source = LocalGpus(nvml=fake_nvml(Gpu())), LocalGpus(nvml=fake_nvml(Gpu(**changed)))
    assert lost in told(whole)
    assert lost not in told(source)
    assert len(source.notes()) == 1


def test_an_old_driver_has_another_name_for_what_slows_a_gpu():
    source = LocalGpus(nvml=fake_nvml(Gpu(old_driver=True, reasons=0x1 | 0x20)))
    assert told(source)["nvml_throttled"] == 1
    assert told(source)["nvml_slowed_by_sw_thermal"] == 1
    assert told(source)["nvml_slowed_by_hw_slowdown"] == 0


def test_idling_and_a_users_clocks_do_not_slow():
    assert told(LocalGpus(nvml=fake_nvml(Gpu(reasons=0x1 | 0x2))))["nvml_throttled"] == 0


@pytest.mark.parametrize("nvml, reason", [(fake_nvml(refuses=True), "driver"), (fake_nvml(), "no GPU")])
def test_without_driver_or_gpu(nvml, reason: str):
    source = LocalGpus(nvml=nvml)
    with pytest.raises(SourceFailed, match=reason) as caught:
        source.open()
    assert caught.value.final
    source.close()
    assert nvml.calls["init"] == nvml.calls["shutdown"]


@pytest.mark.parametrize(
    "target, asked, driver, wanted",
    [
        ({"url": "http://127.0.0.1:8000/x"}, None, True, True),
        ({"url": "http://localhost:8000/x"}, None, False, False),
        ({"url": "http://10.1.1.1:8000/x"}, None, True, False),
        ({"url": "http://127.0.0.1:8000/x", "simulated": {}}, None, True, False),
        ({"url": "kube://ns/s:80"}, None, True, False),
        ({"url": None}, None, True, False),
        ({"url": "http://10.1.1.1:8000/x"}, True, False, True),
        ({"url": "http://127.0.0.1:8000/x"}, False, True, False),
    ],
)
def test_when_local_gpus_are_sampled(target, asked, driver, wanted):
    assert local_gpus_wanted([target], asked, lambda: driver) is wanted
