"""Networks of the zoo that no package builds by name, in plain torch, and wrappers of ``transformers`` models.

Requires the environment of ``requirements/architectures.txt``. ``BUILDERS`` maps an architecture's name to a function
that returns the module; weights are set by ``bench.architectures``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torchvision
import transformers
from torch import Tensor, nn
from torch.nn import functional


def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    """Segmenter with skip connections (Ronneberger et al. 2015, arXiv:1505.04597)."""

    def __init__(self, classes: int = 8, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.first = nn.Sequential(_block(3, width), _block(width, width))
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), _block(fine, coarse), _block(coarse, coarse))
            for fine, coarse in pairwise(widths)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(coarse, fine, 2, 2) for fine, coarse in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.merge = nn.ModuleList(nn.Sequential(_block(2 * fine, fine), _block(fine, fine)) for fine in widths[-2::-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        kept = [self.first(image)]
        for down in self.down:
            kept.append(down(kept[-1]))
        value = kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            value = merge(torch.cat([kept.pop(), up(value)], 1))
        return self.head(value)


def _volume_block(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv3d(inputs, outputs, 3, padding=1)
    return nn.Sequential(convolution, nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU())


class UNet3d(nn.Module):
    """Segmenter of volumes, with instance norm as in nnU-Net (Isensee et al. 2018, arXiv:1809.10486)."""

    def __init__(self, classes: int = 2, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            _volume_block(inputs, outputs)
            for inputs, outputs in ((1, width), (width, 2 * width), (2 * width, 4 * width))
        )
        widths = ((4 * width, 2 * width), (2 * width, width))
        self.up = nn.ModuleList(nn.ConvTranspose3d(coarse, fine, 2, 2) for coarse, fine in widths)
        self.merge = nn.ModuleList(_volume_block(coarse, fine) for coarse, fine in widths)
        self.head = nn.Conv3d(width, classes, 1)

    def forward(self, volume: Tensor) -> Tensor:
        kept = [self.down[0](volume)]
        for down in self.down[1:]:
            kept.append(down(functional.max_pool3d(kept[-1], 2)))
        value = kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            value = merge(torch.cat([up(value), kept.pop()], 1))
        return self.head(value)


class DeepLab(nn.Module):
    """Atrous segmenter (Chen et al. 2017, arXiv:1706.05587) of small images, on MobileNetV3."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__()
        self.body = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=classes
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.body(image)["out"]


class PointNet(nn.Module):
    """Classifier of point clouds (Qi et al. 2017, arXiv:1612.00593), without the input transform."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()
        widths = (3, 64, 128, 1024)
        layers = [
            nn.Sequential(nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU())
            for inputs, outputs in pairwise(widths)
        ]
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(widths[-1], 512), nn.ReLU(), nn.Linear(512, classes))

    def forward(self, points: Tensor) -> Tensor:
        return self.head(self.body(points).amax(2))


class ConvTasNet(nn.Module):
    """Separation of two speakers (Luo and Mesgarani 2019, arXiv:1809.07454), one repeat of six blocks."""

    def __init__(self, filters: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, 16, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(filters, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
                nn.Conv1d(hidden, hidden, 3, padding=2**place, dilation=2**place, groups=hidden),
                nn.PReLU(), nn.GroupNorm(1, hidden), nn.Conv1d(hidden, filters, 1),
            )
            for place in range(6)
        )  # fmt: skip
        self.masks = nn.Conv1d(filters, 2 * filters, 1)
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, 8)

    def forward(self, signal: Tensor) -> Tensor:
        code = value = self.encoder(signal)
        for block in self.blocks:
            value = value + block(value)
        masks = torch.sigmoid(self.masks(value)).unflatten(1, (2, -1))
        return self.decoder((masks * code.unsqueeze(1)).flatten(0, 1))


class Espcn(nn.Module):
    """Super-resolution by sub-pixel convolution (Shi et al. 2016, arXiv:1609.05158)."""

    def __init__(self, scale: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
            nn.Conv2d(32, scale**2, 3, padding=1), nn.PixelShuffle(scale),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        return self.body(image)


class Fsrcnn(nn.Module):
    """Super-resolution by a transposed convolution (Dong et al. 2016, arXiv:1608.00367)."""

    def __init__(self, scale: int = 2, width: int = 56, narrow: int = 12) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, 5, padding=2), nn.PReLU(width)]
        layers += [nn.Conv2d(width, narrow, 1), nn.PReLU(narrow)]
        for _ in range(4):
            layers += [nn.Conv2d(narrow, narrow, 3, padding=1), nn.PReLU(narrow)]
        layers += [nn.Conv2d(narrow, width, 1), nn.PReLU(width)]
        layers.append(nn.ConvTranspose2d(width, 1, 9, scale, 4, output_padding=scale - 1))
        self.body = nn.Sequential(*layers)

    def forward(self, image: Tensor) -> Tensor:
        return self.body(image)


class Yolo(nn.Module):
    """Anchor-free detector whose decoding and non-maximum suppression are part of the graph.

    Returns boxes ``[N, 4]`` (corners, in pixels), scores ``[N]`` and classes ``[N]`` of the kept detections.
    """

    def __init__(self, classes: int = 20, size: int = 256) -> None:
        super().__init__()
        self.classes, self.strides = classes, (8, 16, 32)
        self.stem = nn.Sequential(_block(3, 16, 2), _block(16, 32, 2), _block(32, 64, 2))
        self.stages = nn.ModuleList([_block(64, 64), _block(64, 128, 2), _block(128, 256, 2)])
        self.heads = nn.ModuleList(nn.Conv2d(width, 4 + classes, 1) for width in (64, 128, 256))
        for position, stride in enumerate(self.strides):
            places = torch.arange(size // stride) * stride + stride / 2
            centers = torch.stack(torch.meshgrid(places, places, indexing="xy"), -1).reshape(-1, 2)
            self.register_buffer(f"centers{position}", centers)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, boxes, scores = self.stem(image), [], []
        for position, (stage, head, stride) in enumerate(zip(self.stages, self.heads, self.strides, strict=True)):
            value = stage(value)
            found = head(value).flatten(2).transpose(1, 2)[0]
            reach = functional.softplus(found[:, :4]) * stride
            centers = getattr(self, f"centers{position}")
            boxes.append(torch.cat([centers - reach[:, :2], centers + reach[:, 2:]], 1))
            scores.append(torch.sigmoid(found[:, 4:]))
        best, classes = torch.cat(scores).max(1)
        every = torch.cat(boxes)
        kept = torchvision.ops.nms(every, best, 0.5)[:50]
        return every[kept], best[kept], classes[kept]


class SsdLite(nn.Module):
    """torchvision's SSDLite with its own post-processing."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, score_thresh=0.05, detections_per_img=50
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self.model([image[0]])[0]
        return found["boxes"], found["scores"], found["labels"]


class LrAspp(nn.Module):
    """torchvision's Lite R-ASPP segmenter, without the dictionary around its output."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image)["out"]


class Tagger(nn.Module):
    """Sequence labeller: embedding, recurrent layers, a class for each token."""

    def __init__(self, cell: Callable[..., nn.Module], *, both: bool, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, 64)
        self.recurrent = cell(64, 96, num_layers=layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(192 if both else 96, 17)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.recurrent(self.embedding(ids))[0])


class Tcn(nn.Module):
    """Temporal convolutional network (Bai et al. 2018, arXiv:1803.01271): causal, dilated, residual."""

    def __init__(self, width: int = 64, levels: int = 6) -> None:
        super().__init__()
        self.first = nn.Conv1d(16, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**level) for level in range(levels))
        self.head = nn.Conv1d(width, 10, 1)

    def forward(self, signal: Tensor) -> Tensor:
        value = self.first(signal)
        for level, layer in enumerate(self.layers):
            value = value + functional.relu(layer(functional.pad(value, (2 * 2**level, 0))))
        return self.head(value)


class KeywordSpotter(nn.Module):
    """Depthwise separable keyword spotter, DS-CNN (Zhang et al. 2017, arXiv:1711.07128), on 49 frames of 10 MFCCs."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(1, width, (10, 4), (2, 2), (5, 1), bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        for _ in range(4):
            layers += [nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False), nn.BatchNorm2d(width)]
            layers += [nn.ReLU(), nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 12), nn.Softmax(1))

    def forward(self, features: Tensor) -> Tensor:
        return self.body(features)


class WaveClassifier(nn.Module):
    """Classifier of raw sound, M5 (Dai et al. 2016, arXiv:1610.00087)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, kernel, stride in ((1, 32, 80, 4), (32, 32, 3, 1), (32, 64, 3, 1), (64, 64, 3, 1)):
            layers += [nn.Conv1d(inputs, outputs, kernel, stride), nn.BatchNorm1d(outputs), nn.ReLU(), nn.MaxPool1d(4)]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(64, 35)

    def forward(self, signal: Tensor) -> Tensor:
        return functional.log_softmax(self.head(self.body(signal).mean(-1)), -1)


class WaveUNet(nn.Module):
    """Separator of sound sources, like Demucs (Défossez et al. 2019, arXiv:1911.13254), without its LSTM."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 24, 48, 96, 192)
        pairs = list(pairwise(widths))
        self.encoders = nn.ModuleList(
            nn.Sequential(nn.Conv1d(i, o, 8, 4, 2), nn.ReLU(), nn.Conv1d(o, 2 * o, 1), nn.GLU(1)) for i, o in pairs
        )
        self.decoders = nn.ModuleList(
            nn.Sequential(nn.Conv1d(o, 2 * o, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(o, i, 8, 4, 2))
            for i, o in reversed(pairs)
        )

    def forward(self, signal: Tensor) -> Tensor:
        kept = [signal]
        for encoder in self.encoders:
            kept.append(encoder(kept[-1]))
        value = kept.pop()
        for decoder in self.decoders:
            value = decoder(value)
            if len(kept) > 1:
                value = functional.relu(value) + kept.pop()
        return value


class _ConformerBlock(nn.Module):
    """One block of Gulati et al. 2020, arXiv:2005.08100."""

    def __init__(self, width: int, kernel: int = 15) -> None:
        super().__init__()
        self.before, self.after = self._feed(width), self._feed(width)
        self.normal, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.mixed = nn.LayerNorm(width)
        self.convolution = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1), nn.GLU(1),
            nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width),
            nn.BatchNorm1d(width), nn.SiLU(), nn.Conv1d(width, width, 1),
        )  # fmt: skip
        self.last = nn.LayerNorm(width)

    def _feed(self, width: int) -> nn.Sequential:
        return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, value: Tensor) -> Tensor:
        value = value + self.before(value) / 2
        normal = self.normal(value)
        value = value + self.attention(normal, normal, normal, need_weights=False)[0]
        value = value + self.convolution(self.mixed(value).transpose(1, 2)).transpose(1, 2)
        return self.last(value + self.after(value) / 2)


class Conformer(nn.Module):
    """Speech encoder on log-mel features: convolutional subsampling, blocks, a class for each frame."""

    def __init__(self, width: int = 144, blocks: int = 4) -> None:
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv2d(1, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU())
        self.first = nn.Linear(32 * 19, width)
        self.blocks = nn.Sequential(*(_ConformerBlock(width) for _ in range(blocks)))
        self.head = nn.Linear(width, 128)

    def forward(self, features: Tensor) -> Tensor:
        value = self.subsample(features.unsqueeze(1)).transpose(1, 2).flatten(2)
        return self.head(self.blocks(self.first(value)))


class SpatialTransformer(nn.Module):
    """Classifier that first turns its image by a predicted affine map (Jaderberg et al. 2015, arXiv:1506.02025)."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(_block(1, 8, 2), _block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.map = nn.Linear(16, 6)
        self.what = nn.Sequential(_block(1, 32), _block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(64, 10)

    def forward(self, image: Tensor) -> Tensor:
        same = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        places = torch.linspace(-1, 1, 32)
        rows, columns = torch.meshgrid(places, places, indexing="ij")
        points = torch.stack([columns, rows, torch.ones_like(rows)], -1).reshape(-1, 3)
        turned = points @ (same + 0.1 * torch.tanh(self.map(self.where(image))[0].reshape(2, 3))).T
        grid = turned.reshape(1, 32, 32, 2)
        return self.head(self.what(functional.grid_sample(image, grid, align_corners=False)))


class LinearAttention(nn.Module):
    """Encoder whose attention is linear in the length (Katharopoulos et al. 2020, arXiv:2006.16236), in einsums."""

    def __init__(self, width: int = 128, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.heads, self.normals = heads, nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.projections = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        for normal, projection, out in zip(self.normals, self.projections, self.outs, strict=True):
            parts = projection(normal(tokens)).reshape(batch, length, 3, self.heads, width // self.heads)
            query, key, value = functional.elu(parts[:, :, 0]) + 1, functional.elu(parts[:, :, 1]) + 1, parts[:, :, 2]
            summed = torch.einsum("blhd,blhe->bhde", key, value)
            weights = torch.einsum("blhd,bhd->blh", query, key.sum(1))
            mixed = torch.einsum("blhd,bhde->blhe", query, summed) / weights.unsqueeze(-1)
            tokens = tokens + out(mixed.reshape(batch, length, width))
        return tokens


class _Last(nn.Module):
    """A ``transformers`` model that returns one tensor; ``pick`` names it."""

    def __init__(self, model: nn.Module, pick: str = "last_hidden_state") -> None:
        super().__init__()
        self.model, self.pick = model, pick

    def forward(self, *given: Tensor) -> Tensor:
        return self.model(*given, return_dict=True)[self.pick]


def _bert() -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, vocab_size=8000,
        attn_implementation="eager",
    )  # fmt: skip
    return _Last(transformers.BertModel(config, add_pooling_layer=False))


def _t5() -> nn.Module:
    config = transformers.T5Config(
        d_model=256, d_kv=64, d_ff=1024, num_layers=4, num_heads=4, vocab_size=8000, use_cache=False
    )
    return _Last(transformers.T5EncoderModel(config))


def _whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, attn_implementation="eager"
    )
    return _Last(transformers.models.whisper.modeling_whisper.WhisperEncoder(config))


def _segformer() -> nn.Module:
    return _Last(transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=19)), "logits")


BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "unet": UNet,
    "unet-3d": UNet3d,
    "deeplab": DeepLab,
    "r3d": torchvision.models.video.r3d_18,
    "point-net": PointNet,
    "conv-tasnet": ConvTasNet,
    "espcn": Espcn,
    "fsrcnn": Fsrcnn,
    "yolo": Yolo,
    "ssdlite": SsdLite,
    "lraspp": LrAspp,
    "lstm": lambda: Tagger(nn.LSTM, both=False, layers=2),
    "bilstm": lambda: Tagger(nn.LSTM, both=True),
    "gru": lambda: Tagger(nn.GRU, both=False),
    "bigru": lambda: Tagger(nn.GRU, both=True),
    "rnn": lambda: Tagger(nn.RNN, both=False),
    "tcn": Tcn,
    "keyword": KeywordSpotter,
    "wave-classifier": WaveClassifier,
    "wave-unet": WaveUNet,
    "conformer": Conformer,
    "spatial-transformer": SpatialTransformer,
    "linear-attention": LinearAttention,
    "bert": _bert,
    "t5": _t5,
    "whisper": _whisper,
    "segformer": _segformer,
}
